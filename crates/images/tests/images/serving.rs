//! A registry of Debian's, on the loopback, for as long as a test runs; and a token service as its documents describe
//! one.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine;
use serde_json::json;

use crate::made::{config, gzip, sha256};

/// The name and password that the registries here know, and the password's hash.
pub const USER: (&str, &str) = ("me", "secret");
const HTPASSWD: &str = "me:$2b$04$quq62SZEMv3uu0MQ0XNs3uWrC8o9rF0P86rOtZITqfrkP3wn/DQn6\n";

/// A running registry.
pub struct Serving {
    child: Child,
    pub host: String,
    pub data: PathBuf,
    _dir: tempfile::TempDir,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Who may pull.
pub enum Door {
    Open,
    Password,
    Token,
    /// Anybody, over TLS, with this certificate and key.
    Tls(PathBuf, PathBuf),
}

impl Serving {
    pub fn start(door: Door) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        // The port may be taken by another between the two calls: then the next one is tried.
        for _ in 0..5 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let auth = auth(&door, dir.path());
            let tls = match &door {
                Door::Tls(certificate, key) => {
                    format!(", tls: {{certificate: {}, key: {}}}", certificate.display(), key.display())
                }
                _ => String::new(),
            };
            let text = format!(
                "version: 0.1\nlog: {{level: error}}\nstorage:\n  filesystem: {{rootdirectory: {}}}\n  delete: {{enabled: true}}\n\
                 http: {{addr: '127.0.0.1:{port}'{tls}}}\n{auth}",
                data.display()
            );
            let file = dir.path().join("registry.yml");
            std::fs::write(&file, text).unwrap();
            let mut child = Command::new("docker-registry")
                .args(["serve".as_ref(), file.as_os_str()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let deadline = Instant::now() + Duration::from_secs(10);
            while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
                if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                    return Self { child, host: format!("127.0.0.1:{port}"), data, _dir: dir };
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("the registry does not start");
    }

    /// Pushes a blob.
    pub async fn push_blob(&self, repository: &str, bytes: &[u8]) -> String {
        let digest = sha256(bytes);
        let begin = format!("http://{}/v2/{repository}/blobs/uploads/", self.host);
        let http = client();
        let answer = http.post(begin).basic_auth(USER.0, Some(USER.1)).send().await.unwrap();
        assert_eq!(answer.status().as_u16(), 202);
        let mut place = reqwest::Url::parse(answer.headers()["location"].to_str().unwrap()).unwrap();
        place.query_pairs_mut().append_pair("digest", &digest);
        let put = http.put(place).basic_auth(USER.0, Some(USER.1)).body(bytes.to_vec()).send().await.unwrap();
        assert_eq!(put.status().as_u16(), 201);
        digest
    }

    pub async fn push_manifest(&self, repository: &str, tag: &str, kind: &str, manifest: &[u8]) -> String {
        let place = format!("http://{}/v2/{repository}/manifests/{tag}", self.host);
        let put = client().put(place).basic_auth(USER.0, Some(USER.1));
        let answer = put.header("content-type", kind).body(manifest.to_vec()).send().await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(status, 201, "{}", answer.text().await.unwrap());
        sha256(manifest)
    }

    /// Pushes an image of these layers; every second one is zstd, the others gzip. Gives its manifest's digest and
    /// the blobs of its layers.
    pub async fn push(&self, repository: &str, tag: &str, layers: &[Vec<u8>]) -> (String, Vec<String>) {
        let config_file = config(layers);
        let config_digest = self.push_blob(repository, &config_file).await;
        let mut blobs = Vec::new();
        let mut descriptors = Vec::new();
        for (n, layer) in layers.iter().enumerate() {
            let (kind, bytes) = if n % 2 == 1 {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                ("zstd", ruzstd::encoding::compress_to_vec(&layer[..], level))
            } else {
                ("gzip", gzip(layer))
            };
            let digest = self.push_blob(repository, &bytes).await;
            let kind = format!("application/vnd.oci.image.layer.v1.tar+{kind}");
            descriptors.push(json!({"mediaType": kind, "digest": digest, "size": bytes.len()}));
            blobs.push(digest);
        }
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": config_digest, "size": config_file.len()},
            "layers": descriptors,
        });
        let digest = self.push_manifest(repository, tag, MANIFEST, manifest.to_string().as_bytes()).await;
        (digest, blobs)
    }

    /// Takes over all that another registry has.
    pub fn copy_from(&self, other: &Self) {
        let copied = Command::new("cp").arg("-a").arg(other.data.join(".")).arg(&self.data).status();
        assert!(copied.unwrap().success());
    }

    /// Where the registry keeps a blob.
    pub fn blob_file(&self, digest: &str) -> PathBuf {
        let hex = digest.trim_start_matches("sha256:");
        self.data.join(format!("docker/registry/v2/blobs/sha256/{}/{hex}/data", &hex[..2]))
    }
}

pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";

fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap()
}

fn auth(door: &Door, dir: &Path) -> String {
    match door {
        Door::Open | Door::Tls(..) => String::new(),
        Door::Password => {
            let file = dir.join("htpasswd");
            std::fs::write(&file, HTPASSWD).unwrap();
            format!("auth: {{htpasswd: {{realm: r, path: {}}}}}\n", file.display())
        }
        Door::Token => {
            let service = token_service(dir);
            let bundle = dir.join("tokens.pem");
            format!(
                "auth: {{token: {{realm: 'http://{service}/token', service: here, issuer: test, rootcertbundle: {}}}}}\n",
                bundle.display()
            )
        }
    }
}

/// Serves tokens for `me` to pull and push anything, and to others for nothing, as long as the process lives.
fn token_service(dir: &Path) -> SocketAddr {
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["tokens".into()]).unwrap().self_signed(&key).unwrap();
    std::fs::write(dir.join("tokens.pem"), certificate.pem()).unwrap();
    let chain = base64::engine::general_purpose::STANDARD.encode(certificate.der());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = answer(stream, &key, &chain);
        }
    });
    address
}

fn answer(mut stream: TcpStream, key: &rcgen::KeyPair, chain: &str) -> std::io::Result<()> {
    let mut lines = Vec::new();
    for line in BufReader::new(stream.try_clone()?.take(16 << 10)).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let url = lines.first().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let url = reqwest::Url::parse(&format!("http://x{url}")).map_err(std::io::Error::other)?;
    let scope =
        url.query_pairs().find(|(key, _)| key == "scope").map(|(_, v)| v.into_owned()).unwrap_or_default();
    let basic = base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", USER.0, USER.1));
    let said = lines.iter().find(|line| line.to_lowercase().starts_with("authorization: "));
    let (status, body) = match said.map(|line| line["authorization: ".len()..].to_owned()) {
        Some(said) if said != format!("Basic {basic}") => (
            "401 Unauthorized",
            json!({"errors": [{"code": "UNAUTHORIZED", "message": "wrong password"}]}).to_string(),
        ),
        said => ("200 OK", json!({"token": token(key, chain, &scope, said.is_some())}).to_string()),
    };
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}

/// A signed token with access to what `scope` asks for, or to nothing.
fn token(key: &rcgen::KeyPair, chain: &str, scope: &str, known: bool) -> String {
    use rcgen::SigningKey;
    let url = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    let mut parts = scope.splitn(3, ':');
    let (kind, name) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let actions: Vec<&str> = parts.next().unwrap_or_default().split(',').collect();
    let access = if known { json!([{"type": kind, "name": name, "actions": actions}]) } else { json!([]) };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let header = json!({"typ": "JWT", "alg": "ES256", "x5c": [chain]});
    let claims = json!({
        "iss": "test", "sub": "", "aud": "here", "jti": "1",
        "iat": now, "nbf": now - 60, "exp": now + 300, "access": access,
    });
    let text = format!("{}.{}", url.encode(header.to_string()), url.encode(claims.to_string()));
    let signature = raw_signature(&key.sign(text.as_bytes()).unwrap());
    format!("{text}.{}", url.encode(signature))
}

/// The two numbers of an ECDSA signature in 32 bytes each, out of their DER.
fn raw_signature(der: &[u8]) -> Vec<u8> {
    let mut raw = Vec::new();
    let mut at = 2;
    for _ in 0..2 {
        let length = usize::from(der[at + 1]);
        let number = &der[at + 2..at + 2 + length];
        let number = &number[number.len().saturating_sub(32)..];
        raw.extend(vec![0; 32 - number.len()]);
        raw.extend(number);
        at += 2 + length;
    }
    raw
}
