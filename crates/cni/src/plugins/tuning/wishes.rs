//! What `tuning` is to set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::mac;
use crate::spec::{CniError, Code, Request};

/// Where the reference keeps what links had.
const DATA_DIR: &str = "/run/cni/tuning";
/// The sysctls that may be set, one pattern a line; all where there is no such file.
const ALLOWED: &str = "/etc/cni/tuning/allowlist.conf";

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Config {
    sysctl: Option<BTreeMap<String, String>>,
    mac: Option<String>,
    promisc: Option<bool>,
    mtu: Option<u32>,
    #[serde(rename = "txQLen")]
    tx_queue: Option<u32>,
    allmulti: Option<bool>,
    args: Args,
    runtime_config: Runtime,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: Option<Box<Config>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Runtime {
    mac: String,
}

/// The settings.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Keys in path form below `/proc/sys`, with their values.
    pub sysctls: Vec<(String, String)>,
    /// The hardware address.
    pub mac: Option<String>,
    /// Promiscuous mode.
    pub promisc: bool,
    /// The MTU, in bytes.
    pub mtu: Option<u32>,
    /// Frames that wait to be sent at most.
    pub tx_queue: Option<u32>,
    /// Takes in every multicast.
    pub allmulti: Option<bool>,
    /// Where is kept what the link had.
    pub data_dir: PathBuf,
    /// The keys as they are configured.
    names: Vec<String>,
}

/// Where is kept what links had.
pub fn data_dir(request: &Request) -> PathBuf {
    let dir = request.config.get("dataDir").and_then(|dir| dir.as_str()).filter(|dir| !dir.is_empty());
    PathBuf::from(dir.unwrap_or(DATA_DIR))
}

/// The path form of a sysctl's key below `/proc/sys`. `IFNAME` is the link's name, which may hold dots itself.
fn path(key: &str, ifname: &str) -> Result<String, CniError> {
    let path = key.replace('.', "/").replacen("IFNAME", ifname, 1);
    let fits = path.starts_with("net/") && !path.split('/').any(|part| part.is_empty() || part == "..");
    if fits {
        Ok(path)
    } else {
        Err(CniError::new(Code::InvalidConfig, format!("invalid net sysctl key: {key:?}")))
    }
}

impl Wishes {
    /// Those of a request.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`].
    pub fn of(request: &Request) -> Result<Self, CniError> {
        let config: Config = request.config()?;
        let args = config.args.cni.unwrap_or_default();
        let mut sysctls = config.sysctl.unwrap_or_default();
        sysctls.extend(args.sysctl.unwrap_or_default());
        let runtimes = Some(config.runtime_config.mac).filter(|mac| !mac.is_empty());
        let wanted = args.mac.or(runtimes).or_else(|| request.arg("MAC")).or(config.mac);
        let wanted = wanted.filter(|mac| !mac.is_empty());
        let own = wanted.as_deref().map(mac).transpose()?;
        let ifname = &request.env.ifname;
        Ok(Self {
            names: sysctls.keys().cloned().collect(),
            sysctls: sysctls
                .into_iter()
                .map(|(key, value)| Ok((path(&key, ifname)?, value)))
                .collect::<Result<_, CniError>>()?,
            mac: own.map(|mac| mac.to_string()),
            promisc: args.promisc.or(config.promisc).unwrap_or(false),
            mtu: args.mtu.or(config.mtu).filter(|mtu| *mtu > 0),
            tx_queue: args.tx_queue.or(config.tx_queue),
            allmulti: args.allmulti.or(config.allmulti),
            data_dir: data_dir(request),
        })
    }

    /// True if the link itself is to be changed.
    pub fn of_link(&self) -> bool {
        self.mac.is_some()
            || self.promisc
            || self.mtu.is_some()
            || self.tx_queue.is_some()
            || self.allmulti.is_some()
    }

    /// Success if this machine lets all sysctls be set.
    ///
    /// # Errors
    /// [`Code::InvalidConfig`] for the first that it does not, [`Code::Io`].
    pub fn allowed(&self) -> Result<(), CniError> {
        self.allowed_by(Path::new(ALLOWED))
    }

    fn allowed_by(&self, file: &Path) -> Result<(), CniError> {
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => {
                let msg = format!("cannot read {}", file.display());
                return Err(CniError::new(Code::Io, msg).because(e));
            }
        };
        let patterns: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match self.names.iter().find(|name| !patterns.iter().any(|pattern| matches(pattern, name))) {
            None => Ok(()),
            Some(name) => {
                let msg = format!(
                    "Sysctl {name} is not allowed. Only the following sysctls are allowed: {patterns:?}"
                );
                Err(CniError::new(Code::InvalidConfig, msg))
            }
        }
    }
}

/// The reference's patterns are regular expressions found anywhere in the key. Those that such files hold are known here: `^`, `$`,
/// `.` (any letter), `x*`, `x+`, `\` and letters; one with anything else allows nothing.
fn matches(pattern: &str, key: &str) -> bool {
    let (pattern, fixed) = pattern.strip_prefix('^').map_or((pattern, false), |rest| (rest, true));
    let Some(pieces) = pieces(pattern) else { return false };
    let key: Vec<char> = key.chars().collect();
    (0..=key.len()).take(if fixed { 1 } else { key.len() + 1 }).any(|at| fits(&pieces, &key[at..]))
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Piece {
    One(Option<char>),
    Many(Option<char>),
    End,
}

fn pieces(pattern: &str) -> Option<Vec<Piece>> {
    let mut pieces = Vec::new();
    let mut rest = pattern.chars().peekable();
    while let Some(letter) = rest.next() {
        let one = match letter {
            '$' if rest.peek().is_none() => {
                pieces.push(Piece::End);
                break;
            }
            '.' => None,
            '\\' => Some(rest.next()?),
            '(' | ')' | '[' | ']' | '{' | '}' | '|' | '?' | '*' | '+' | '$' | '^' => return None,
            other => Some(other),
        };
        match rest.peek() {
            Some('*') => {
                rest.next();
                pieces.push(Piece::Many(one));
            }
            Some('+') => {
                rest.next();
                pieces.extend([Piece::One(one), Piece::Many(one)]);
            }
            _ => pieces.push(Piece::One(one)),
        }
    }
    Some(pieces)
}

fn fits(pieces: &[Piece], key: &[char]) -> bool {
    let is = |one: Option<char>, letter: char| one.is_none_or(|one| one == letter);
    match pieces {
        [] => true,
        [Piece::End, ..] => key.is_empty(),
        [Piece::One(one), rest @ ..] => key.first().is_some_and(|l| is(*one, *l)) && fits(rest, &key[1..]),
        [Piece::Many(one), rest @ ..] => {
            fits(rest, key) || key.first().is_some_and(|l| is(*one, *l) && fits(pieces, &key[1..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::spec::Env;

    fn wishes(config: &Value, args: &str) -> Result<Wishes, CniError> {
        let mut whole = json!({"name": "n", "cniVersion": "1.0.0"});
        for (key, value) in config.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let env = Env { args: args.to_owned(), ifname: "eth0.1".to_owned(), ..Env::default() };
        Wishes::of(&Request::new(&env, whole)?)
    }

    #[test]
    fn arguments_come_before_the_configuration_and_keys_stay_below_net() {
        let all = wishes(
            &json!({"sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "5"}, "mtu": 1400,
                "mac": "02:00:00:00:00:01", "args": {"cni": {"sysctl": {"net.core.somaxconn": "500"}, "mtu": 1300,
                "promisc": true, "txQLen": 9, "allmulti": false}}}),
            "MAC=02:00:00:00:00:02",
        )
        .unwrap();
        let sysctl = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(
            all.sysctls,
            [sysctl("net/core/somaxconn", "500"), sysctl("net/ipv4/conf/eth0.1/arp_filter", "1")]
        );
        assert_eq!(
            (all.mtu, all.promisc, all.tx_queue, all.allmulti),
            (Some(1300), true, Some(9), Some(false))
        );
        assert_eq!(all.mac.as_deref(), Some("02:00:00:00:00:02"));
        for key in ["kernel.hostname", "net/../kernel/hostname", "net", "net..x", "/net/x"] {
            let error = wishes(&json!({"sysctl": {key: "1"}}), "").unwrap_err();
            assert_eq!(error.code, Code::InvalidConfig, "{key}");
        }
    }

    #[test]
    fn a_list_of_patterns_allows_what_it_matches_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("list");
        let wishes = wishes(&json!({"sysctl": {"net.ipv4.conf.all.log_martians": "1"}}), "").unwrap();
        wishes.allowed_by(&file).unwrap();
        for (patterns, allowed) in [
            ("net.ipv4.conf.all.log_martians", true),
            ("^net.ipv4.conf.*.log_martians$", true),
            ("^net\\.ipv4\\.", true),
            ("x\n\nlog_mar+tians$", true),
            ("^ipv4", false),
            ("log$", false),
            ("net.ipv4.(conf|neigh)", false),
            ("", false),
        ] {
            std::fs::write(&file, patterns).unwrap();
            assert_eq!(wishes.allowed_by(&file).is_ok(), allowed, "{patterns}");
        }
    }
}
