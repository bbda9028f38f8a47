//! What a registry's `hosts.toml` says. Pure.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

/// What a host is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Which content a tag means.
    Resolve,
    /// Content by its digest.
    Pull,
}

/// One place where a registry's images are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    /// What stands before `/<repository>/manifests/…`: `https://registry.k8s.io/v2`.
    pub base: String,
    /// Without TLS.
    pub plain: bool,
    /// It is the registry, not a mirror: credentials are for it alone.
    pub origin: bool,
    /// May say what a tag means.
    pub resolve: bool,
    /// May give content by digest.
    pub pull: bool,
    /// PEM files of certificates that are trusted beside the machine's own.
    pub ca: Vec<PathBuf>,
    /// PEM files of a certificate to show, and of its key if that is another file.
    pub client: Option<(PathBuf, Option<PathBuf>)>,
    /// Any certificate will do.
    pub skip_verify: bool,
    /// Sent with each request.
    pub headers: Vec<(String, String)>,
    /// How long a connection may take, if not as long as usual.
    pub connect_timeout: Option<Duration>,
}

impl Host {
    /// A registry that nothing is said about. `plain`: it speaks HTTP.
    pub fn origin(registry: &str, plain: bool) -> Self {
        let name = server_of(registry);
        let scheme = if plain || is_loopback(name) { "http" } else { "https" };
        Self {
            base: format!("{scheme}://{name}/v2"),
            plain: scheme == "http",
            origin: true,
            resolve: true,
            pull: true,
            ca: Vec::new(),
            client: None,
            skip_verify: false,
            headers: Vec::new(),
            connect_timeout: None,
        }
    }

    /// Whether it may be asked for that.
    pub fn serves(&self, need: Need) -> bool {
        match need {
            // The manifest comes with the answer.
            Need::Resolve => self.resolve && self.pull,
            Need::Pull => self.pull,
        }
    }

    /// Host and port, as people know it.
    pub fn name(&self) -> &str {
        let rest = self.base.split_once("://").map_or(self.base.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }
}

/// The host behind a registry's name.
fn server_of(registry: &str) -> &str {
    match registry {
        "docker.io" | "index.docker.io" => "registry-1.docker.io",
        host => host,
    }
}

/// The names of the folders that may speak for a registry; the first that is there does.
pub(crate) fn folders(registry: &str) -> Vec<String> {
    let mut names = Vec::new();
    // A colon cannot stand in a file's name everywhere, so there is another way to write a port.
    if let Some((host, port)) = registry.rsplit_once(':') {
        names.push(format!("{host}_{port}_"));
    }
    names.extend([registry.to_owned(), "_default".to_owned()]);
    names
}

/// True for `localhost`, 127.0.0.0/8 and `[::1]`, with or without a port.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(rest),
        None => host.split(':').next().unwrap_or(host),
    };
    name == "localhost" || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// One string or several.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Strings {
    One(String),
    Many(Vec<String>),
}

impl Strings {
    fn all(self) -> Vec<String> {
        match self {
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

/// One PEM file with both, or pairs of certificate and key.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Client {
    One(String),
    Files(Vec<String>),
    Pairs(Vec<Vec<String>>),
}

/// What is said of a host. Unknown fields are newer than this and no error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Section {
    capabilities: Option<Vec<String>>,
    ca: Option<Strings>,
    client: Option<Client>,
    skip_verify: bool,
    override_path: bool,
    dial_timeout: Option<String>,
    header: toml::Table,
}

/// The whole file: what is said of the registry itself, and its mirrors in their order.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct File {
    server: Option<String>,
    host: toml::Table,
    #[serde(flatten)]
    own: Section,
}

/// The hosts that the file's `text` names for `registry`, in the order in which they are tried: mirrors as they are written,
/// then the registry, which `server` may move. Relative files lie in `folder`.
pub(crate) fn read(text: &str, registry: &str, plain: bool, folder: &Path) -> Result<Vec<Host>, String> {
    let file: File = toml::from_str(text).map_err(|e| e.to_string().trim_end().to_owned())?;
    let mut hosts = Vec::new();
    for (address, value) in file.host {
        let section: Section = value.try_into().map_err(|e| format!("host {address:?}: {e}"))?;
        let known = host(&address, &section, folder).map_err(|why| format!("host {address:?}: {why}"))?;
        // One that bears the registry's own name is the registry.
        let origin = known.name() == server_of(registry);
        hosts.push(Host { origin, ..known });
    }
    let own = Host::origin(registry, plain);
    let address = file
        .server
        .filter(|server| !server.is_empty())
        .unwrap_or_else(|| own.base.trim_end_matches("/v2").to_owned());
    let known = host(&address, &file.own, folder).map_err(|why| format!("server {address:?}: {why}"))?;
    hosts.push(Host { origin: true, ..known });
    Ok(hosts)
}

fn host(address: &str, section: &Section, folder: &Path) -> Result<Host, String> {
    let (scheme, rest) = match address.split_once("://") {
        Some(parts) => parts,
        None if is_loopback(address) => ("http", address),
        None => ("https", address),
    };
    if !matches!(scheme, "http" | "https") {
        return Err(format!("{scheme} is neither http nor https"));
    }
    let (name, path) = rest.split_once('/').unwrap_or((rest, ""));
    if name.is_empty() {
        return Err("it names no host".into());
    }
    let path = path.trim_matches('/');
    let mut base = format!("{scheme}://{name}");
    if !path.is_empty() {
        base = format!("{base}/{path}");
    }
    if !section.override_path && path != "v2" && !path.ends_with("/v2") {
        base.push_str("/v2");
    }
    let may = |what: &str| {
        section
            .capabilities
            .as_ref()
            .is_none_or(|named| named.iter().any(|name| name.eq_ignore_ascii_case(what)))
    };
    let file = |name: &String| folder.join(name);
    Ok(Host {
        base,
        plain: scheme == "http",
        origin: false,
        resolve: may("resolve"),
        pull: may("pull"),
        ca: section.ca.clone().map(Strings::all).unwrap_or_default().iter().map(file).collect(),
        client: client(section.client.as_ref(), folder)?,
        skip_verify: section.skip_verify,
        headers: headers(&section.header)?,
        connect_timeout: section.dial_timeout.as_deref().map(duration).transpose()?,
    })
}

fn client(client: Option<&Client>, folder: &Path) -> Result<Option<(PathBuf, Option<PathBuf>)>, String> {
    let files: &[String] = match client {
        None => return Ok(None),
        Some(Client::One(file)) => std::slice::from_ref(file),
        Some(Client::Files(files)) => files.get(..1).unwrap_or_default(),
        Some(Client::Pairs(pairs)) => pairs.first().map_or(&[], Vec::as_slice),
    };
    match files {
        [] => Ok(None),
        [both] => Ok(Some((folder.join(both), None))),
        [certificate, key] if key.is_empty() => Ok(Some((folder.join(certificate), None))),
        [certificate, key] => Ok(Some((folder.join(certificate), Some(folder.join(key))))),
        _ => Err("client names more than a certificate and its key".into()),
    }
}

fn headers(table: &toml::Table) -> Result<Vec<(String, String)>, String> {
    let mut headers = Vec::new();
    for (name, value) in table {
        let values: Strings = value.clone().try_into().map_err(|_| format!("header {name} is no text"))?;
        headers.extend(values.all().into_iter().map(|value| (name.clone(), value)));
    }
    Ok(headers)
}

/// A duration as Go writes it: `1m30s`, `500ms`.
fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("dial_timeout {text:?} is no duration such as \"10s\"");
    let mut total = Duration::ZERO;
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        let unit = &rest[digits..];
        let length = unit.find(|c: char| c.is_ascii_digit()).unwrap_or(unit.len());
        let seconds = match &unit[..length] {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        total += Duration::try_from_secs_f64(number * seconds).map_err(|_| bad())?;
        rest = &unit[length..];
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_for(registry: &str, text: &str) -> Vec<Host> {
        read(text, registry, false, Path::new("/certs.d/x")).unwrap()
    }

    #[test]
    fn mirrors_come_before_the_registry_in_the_order_in_which_they_are_written() {
        let hosts = read_for(
            "docker.io",
            "[host.\"https://z.example\"]\n[host.\"http://a.example:5000\"]\n[host.\"b.example/proxy\"]\n",
        );
        let bases: Vec<&str> = hosts.iter().map(|host| host.base.as_str()).collect();
        assert_eq!(
            bases,
            [
                "https://z.example/v2",
                "http://a.example:5000/v2",
                "https://b.example/proxy/v2",
                "https://registry-1.docker.io/v2"
            ]
        );
        assert_eq!(hosts.iter().map(|host| host.origin).collect::<Vec<_>>(), [false, false, false, true]);
        assert_eq!(hosts.iter().map(|host| host.plain).collect::<Vec<_>>(), [false, true, false, false]);
    }

    #[test]
    fn paths_are_completed_unless_they_are_to_be_left() {
        for (host, overridden, base) in [
            ("https://m", false, "https://m/v2"),
            ("https://m/", false, "https://m/v2"),
            ("https://m/v2", false, "https://m/v2"),
            ("https://m/v2/cache/", false, "https://m/v2/cache/v2"),
            ("https://m/v2/cache/", true, "https://m/v2/cache"),
            ("https://m", true, "https://m"),
            ("localhost:5000", false, "http://localhost:5000/v2"),
            ("m:5000", false, "https://m:5000/v2"),
        ] {
            let text = format!("[host.{host:?}]\noverride_path = {overridden}\n");
            assert_eq!(read_for("quay.io", &text)[0].base, base, "{host} {overridden}");
        }
    }

    #[test]
    fn every_setting_of_a_host_is_taken() {
        let text = r#"
            server = "http://moved:5000"
            capabilities = ["pull"]
            [host."https://m"]
            capabilities = ["pull", "resolve"]
            ca = ["one.pem", "/two.pem"]
            client = [["me.pem", "me.key"]]
            skip_verify = true
            dial_timeout = "1m1.5s"
            something_newer = 1
            [host."https://m".header]
            x-one = "1"
            x-two = ["2", "3"]
        "#;
        let hosts = read_for("quay.io", text);
        let m = &hosts[0];
        assert!(m.resolve && m.pull && m.skip_verify && !m.origin);
        assert_eq!(m.ca, [Path::new("/certs.d/x/one.pem"), Path::new("/two.pem")]);
        assert_eq!(m.client, Some(("/certs.d/x/me.pem".into(), Some("/certs.d/x/me.key".into()))));
        assert_eq!(m.connect_timeout, Some(Duration::from_millis(61_500)));
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(m.headers, [header("x-one", "1"), header("x-two", "2"), header("x-two", "3")]);
        let own = &hosts[1];
        assert_eq!((own.base.as_str(), own.origin), ("http://moved:5000/v2", true));
        assert!(own.serves(Need::Pull) && !own.serves(Need::Resolve));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_its_place() {
        for (text, said) in [
            ("[host", "line 1"),
            ("[host.\"ftp://m\"]", "ftp is neither"),
            ("[host.\"https:///x\"]", "names no host"),
            ("[host.\"https://m\"]\ndial_timeout = \"soon\"", "soon"),
            ("[host.\"https://m\"]\ncapabilities = 1", "https://m"),
            ("[host.\"https://m\"]\nclient = [[\"a\", \"b\", \"c\"]]", "more than"),
            ("[host.\"https://m\".header]\nx = 1", "header x"),
        ] {
            let error = read(text, "quay.io", false, Path::new("/x")).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn a_registry_with_a_port_may_have_its_folder_under_either_name() {
        assert_eq!(folders("quay.io"), ["quay.io", "_default"]);
        assert_eq!(folders("r:5000"), ["r_5000_", "r:5000", "_default"]);
    }

    #[test]
    fn only_the_loopback_speaks_plainly_by_itself() {
        for host in ["localhost", "localhost:5000", "127.0.0.1:5000", "127.1.2.3", "[::1]:5000"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["docker.io", "10.0.0.1:5000", "localhost.example.com", "127.0.0.1.nip.io:80"] {
            assert!(!is_loopback(host), "{host}");
        }
        assert_eq!(Host::origin("quay.io", true).base, "http://quay.io/v2");
    }
}
