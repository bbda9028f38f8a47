//! Given addresses on disk, as the reference `host-local` keeps them: `<dataDir>/<network>/<address>` holds
//! `containerID\r\nifname`, `last_reserved_ip.<set>` where to go on, and `lock` is locked meanwhile.
//!
//! Ours besides: an index by attachment, so that neither ADD nor DEL reads every file; and the id of the boot, for no
//! attachment outlives one. The reference walks over both without harm.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use trine_kernel::testing::failpoint;

use crate::spec::{AttachmentId, CniError, Code};

const INDEX: &str = ".trine-index";
const BOOT: &str = ".trine-boot";

/// The addresses of one network, locked for as long as this lives.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    _lock: File,
}

fn failed(call: &str, path: &Path) -> impl FnOnce(io::Error) -> CniError {
    let msg = format!("address store: cannot {call} {}", path.display());
    move |e| CniError::new(Code::Io, msg).because(e)
}

fn remove(path: &Path) -> Result<(), CniError> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove", path)(e)),
        _ => Ok(()),
    }
}

impl Store {
    /// Opens and locks the store of `network` below `data_dir`. What another boot left is given back.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn open(data_dir: &Path, network: &str) -> Result<Self, CniError> {
        let dir = data_dir.join(network);
        let path = dir.join("lock");
        let open = || OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let lock = open()
            .or_else(|e| {
                if e.kind() == io::ErrorKind::NotFound {
                    std::fs::create_dir_all(dir.join(INDEX)).and_then(|()| open())
                } else {
                    Err(e)
                }
            })
            .map_err(failed("open", &path))?;
        lock.lock().map_err(failed("lock", &path))?;
        let store = Self { dir, _lock: lock };
        store.forget_other_boots()?;
        Ok(store)
    }

    fn forget_other_boots(&self) -> Result<(), CniError> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let path = self.dir.join(BOOT);
        match std::fs::read_to_string(&path) {
            Ok(stamp) if stamp == boot => return Ok(()),
            // Without a stamp the reservations may be this boot's, by the reference.
            Err(_) => {}
            Ok(_) => {
                for (addr, _) in self.reservations()? {
                    remove(&self.dir.join(addr.to_string()))?;
                }
                let _ = std::fs::remove_dir_all(self.dir.join(INDEX));
            }
        }
        let index = self.dir.join(INDEX);
        std::fs::create_dir_all(&index).map_err(failed("create", &index))?;
        std::fs::write(&path, boot).map_err(failed("write", &path))
    }

    fn index(&self, id: &AttachmentId) -> PathBuf {
        self.dir.join(INDEX).join(format!("{}:{}", id.container_id, id.ifname))
    }

    /// The addresses of `id`.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn of(&self, id: &AttachmentId) -> Result<Vec<IpAddr>, CniError> {
        if let Ok(text) = std::fs::read_to_string(self.index(id)) {
            let all = text.lines().filter_map(|line| line.parse().ok());
            return Ok(all
                .filter(|addr| self.owner(*addr).is_some_and(|owner| owner.is(id) || owner.is_nobody()))
                .collect());
        }
        // The reference knows of no index.
        let all = self.reservations()?;
        Ok(all.into_iter().filter(|(_, owner)| owner.is(id)).map(|(addr, _)| addr).collect())
    }

    /// True if `id` was given an address by us.
    #[must_use]
    pub fn knows(&self, id: &AttachmentId) -> bool {
        self.index(id).exists() && self.of(id).is_ok_and(|all| !all.is_empty())
    }

    /// Gives `addr` to `id`; false if it is somebody's already.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn reserve(&self, id: &AttachmentId, addr: IpAddr) -> Result<bool, CniError> {
        let path = self.dir.join(addr.to_string());
        // The index comes first: a reservation that DEL cannot find would be lost.
        let index = self.index(id);
        let mut file =
            OpenOptions::new().create(true).append(true).open(&index).map_err(failed("open", &index))?;
        writeln!(file, "{addr}").map_err(failed("write", &index))?;
        failpoint("address: index");
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                failpoint("address: file");
                let text = format!("{}\r\n{}", id.container_id, id.ifname);
                file.write_all(text.as_bytes()).map_err(failed("write", &path))?;
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(failed("create", &path)(e)),
        }
    }

    /// True if `addr` is nobody's.
    #[must_use]
    pub fn is_free(&self, addr: IpAddr) -> bool {
        !self.dir.join(addr.to_string()).exists()
    }

    /// All addresses that are somebody's, by their files' names alone.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn taken(&self) -> Result<BTreeSet<IpAddr>, CniError> {
        let entries = std::fs::read_dir(&self.dir).map_err(failed("list", &self.dir))?;
        Ok(entries.filter_map(Result::ok).filter_map(|e| e.file_name().to_str()?.parse().ok()).collect())
    }

    /// Takes back whatever `id` has; nothing is success.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn release(&self, id: &AttachmentId) -> Result<(), CniError> {
        for addr in self.of(id)? {
            remove(&self.dir.join(addr.to_string()))?;
            failpoint("address: released");
        }
        remove(&self.index(id))
    }

    /// Takes back whatever none of `valid` has.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn keep_only(&self, valid: &[AttachmentId]) -> Result<(), CniError> {
        for (addr, owner) in self.reservations()? {
            if !valid.iter().any(|id| owner.is(id)) {
                tracing::info!(%addr, container = owner.container_id, "stale address is taken back");
                remove(&self.dir.join(addr.to_string()))?;
            }
        }
        let index = self.dir.join(INDEX);
        for entry in std::fs::read_dir(&index).map_err(failed("list", &index))?.filter_map(Result::ok) {
            if !valid.iter().any(|id| self.index(id) == entry.path()) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }

    /// The address that the set `index` gave last.
    #[must_use]
    pub fn last(&self, index: usize) -> Option<IpAddr> {
        std::fs::read_to_string(self.last_path(index)).ok()?.trim().parse().ok()
    }

    /// Remembers it.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn set_last(&self, index: usize, addr: IpAddr) -> Result<(), CniError> {
        let path = self.last_path(index);
        std::fs::write(&path, addr.to_string()).map_err(failed("write", &path))
    }

    fn last_path(&self, index: usize) -> PathBuf {
        self.dir.join(format!("last_reserved_ip.{index}"))
    }

    fn owner(&self, addr: IpAddr) -> Option<Owner> {
        let text = std::fs::read_to_string(self.dir.join(addr.to_string())).ok()?;
        let mut lines = text.trim().lines();
        let container_id = lines.next().unwrap_or_default().trim().to_owned();
        Some(Owner { container_id, ifname: lines.next().map(|line| line.trim().to_owned()) })
    }

    fn reservations(&self) -> Result<Vec<(IpAddr, Owner)>, CniError> {
        let taken = self.taken()?.into_iter();
        Ok(taken.filter_map(|addr| self.owner(addr).map(|owner| (addr, owner))).collect())
    }
}

/// Whose an address is. The oldest stores have no interface.
#[derive(Debug)]
struct Owner {
    container_id: String,
    ifname: Option<String>,
}

impl Owner {
    /// Whoever took the address was killed before it wrote its name down. Its index names the address.
    fn is_nobody(&self) -> bool {
        self.container_id.is_empty()
    }

    fn is(&self, id: &AttachmentId) -> bool {
        self.container_id == id.container_id && self.ifname.as_ref().is_none_or(|name| *name == id.ifname)
    }
}
