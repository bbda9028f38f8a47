//! Given addresses on disk, as the reference `host-local` keeps them: `<dataDir>/<network>/<address>` holds
//! `containerID\r\nifname`, `last_reserved_ip.<set>` where to go on, and `lock` is locked meanwhile.
//!
//! Ours besides, so that neither ADD nor DEL reads every file. The reference walks over all of it without harm.
//! - `.trine-index/<containerID>:<ifname>` the addresses of an attachment
//! - `.trine-bits.<set>` which addresses of a set are taken: a hint ([`super::bits`])
//! - `.trine-boot` the boot that it is all of, for no attachment outlives one; and when the folder was last changed by us. Whoever else
//!   changes it, the reference or a hand or a process of ours that was killed, has all files read once more.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use trine_kernel::testing::failpoint;

use super::bits::{self, Bits};
use super::range::RangeSet;
use crate::spec::{AttachmentId, CniError, Code};

const INDEX: &str = ".trine-index";
const BOOT: &str = ".trine-boot";
const BITS: &str = ".trine-bits";
/// The longest name of an index's file, bytes; longer ones are hashed.
const NAME_MAX: usize = 200;
/// As much of a file of bits as has its ranges, bytes.
const HEAD: usize = 4096;

/// The addresses of one network, locked for as long as this lives.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    boot: String,
    stamp: String,
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
    /// Opens and locks the store of `network` below `data_dir`. What another boot left is given back; what others put there is taken over.
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
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let stamp = std::fs::read_to_string(dir.join(BOOT)).unwrap_or_default();
        let store = Self { dir, boot: boot.trim().to_owned(), stamp, _lock: lock };
        store.settle()?;
        Ok(store)
    }

    /// What the stamp says when nothing has changed since.
    fn now(&self) -> String {
        let changed = std::fs::metadata(&self.dir).map(|meta| (meta.mtime(), meta.mtime_nsec()));
        let (seconds, nanos) = changed.unwrap_or_default();
        format!("{}\n{seconds}.{nanos}\n", self.boot)
    }

    fn settle(&self) -> Result<(), CniError> {
        if self.stamp == self.now() {
            return Ok(());
        }
        let index = self.dir.join(INDEX);
        let stamped = self.stamp.lines().next().unwrap_or_default();
        // Without a stamp the reservations may be this boot's, by the reference.
        if !stamped.is_empty() && stamped != self.boot {
            for addr in self.taken()? {
                remove(&self.dir.join(addr.to_string()))?;
            }
            let _ = std::fs::remove_dir_all(&index);
        }
        std::fs::create_dir_all(&index).map_err(failed("create", &index))?;
        failpoint("address: other boots forgotten");
        self.forget_bits()?;
        self.take_over()
    }

    /// Has every reservation in the index.
    fn take_over(&self) -> Result<(), CniError> {
        for (addr, owner) in self.reservations()? {
            if owner.is_nobody() {
                continue;
            }
            let index = self.index_of(&owner.container_id, owner.ifname.as_deref().unwrap_or_default());
            let known = std::fs::read_to_string(&index).unwrap_or_default();
            if !known.lines().any(|line| line.parse() == Ok(addr)) {
                append(&index, addr)?;
            }
        }
        failpoint("address: taken over");
        Ok(())
    }

    fn index_of(&self, container_id: &str, ifname: &str) -> PathBuf {
        let mut name = format!("{container_id}:{ifname}");
        if name.len() > NAME_MAX {
            name = Sha256::digest(&name).iter().map(|byte| format!("{byte:02x}")).collect();
        }
        self.dir.join(INDEX).join(name)
    }

    fn index(&self, id: &AttachmentId) -> PathBuf {
        self.index_of(&id.container_id, &id.ifname)
    }

    /// The indices of an attachment: its own, and that of a reservation which does not say for which link it is.
    fn indices(&self, id: &AttachmentId) -> [PathBuf; 2] {
        [self.index(id), self.index_of(&id.container_id, "")]
    }

    /// What the index says of `id`.
    fn indexed(&self, id: &AttachmentId) -> BTreeSet<IpAddr> {
        let texts = self.indices(id).into_iter().filter_map(|path| std::fs::read_to_string(path).ok());
        texts.flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<_>>()).collect()
    }

    /// The addresses of `id`.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn of(&self, id: &AttachmentId) -> Result<Vec<IpAddr>, CniError> {
        let ours = |addr: &IpAddr| self.owner(*addr).is_some_and(|owner| owner.is(id) || owner.is_nobody());
        Ok(self.indexed(id).into_iter().filter(ours).collect())
    }

    /// Gives `addr` to `id`; false if it is somebody's already.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn reserve(&self, id: &AttachmentId, addr: IpAddr) -> Result<bool, CniError> {
        let path = self.dir.join(addr.to_string());
        // The index comes first: a reservation that DEL cannot find would be lost.
        append(&self.index(id), addr)?;
        failpoint("address: index");
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                failpoint("address: file");
                let text = format!("{}\r\n{}", id.container_id, id.ifname);
                file.write_all(text.as_bytes()).map_err(failed("write", &path))?;
                failpoint("address: named");
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

    /// The bits of the set `index` as they are on disk; none if they are of other ranges, or there are none.
    pub fn bits(&self, index: usize, set: &RangeSet) -> Option<Bits> {
        Bits::read(set, &std::fs::read(self.bits_path(index)).ok()?)
    }

    /// The bits of the set `index` as the files say; none if the set is too large for bits.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn count_anew(&self, index: usize, set: &RangeSet) -> Result<Option<Bits>, CniError> {
        let Some(bits) = Bits::new(set, &self.taken()?) else { return Ok(None) };
        let path = self.bits_path(index);
        std::fs::write(&path, bits.write()).map_err(failed("write", &path))?;
        failpoint("address: counted");
        Ok(Some(bits))
    }

    /// Writes down that the address of a place is taken.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn mark_taken(&self, index: usize, bits: &mut Bits, place: usize) -> Result<(), CniError> {
        bits.mark(place, true);
        let (path, (at, byte)) = (self.bits_path(index), bits.byte(place));
        let file = OpenOptions::new().write(true).open(&path).map_err(failed("open", &path))?;
        file.write_all_at(&[byte], at).map_err(failed("write", &path))
    }

    /// Writes down that an address is free, in whichever sets it is. It is a hint: what cannot be written is found out later.
    fn mark_free(&self, addr: IpAddr) {
        for index in 0.. {
            let Ok(file) = OpenOptions::new().read(true).write(true).open(self.bits_path(index)) else {
                break;
            };
            let mut head = vec![0; HEAD];
            let Ok(length) = file.read_at(&mut head, 0) else { continue };
            let Some((at, bit)) = bits::locate(&head[..length], addr) else { continue };
            let mut byte = [0];
            if file.read_exact_at(&mut byte, at).is_ok() {
                let _ = file.write_all_at(&[byte[0] & !bit], at);
            }
        }
    }

    fn forget_bits(&self) -> Result<(), CniError> {
        for index in 0.. {
            let path = self.bits_path(index);
            if !path.exists() {
                break;
            }
            remove(&path)?;
        }
        Ok(())
    }

    fn bits_path(&self, index: usize) -> PathBuf {
        self.dir.join(format!("{BITS}.{index}"))
    }

    /// Takes back whatever `id` has; nothing is success.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn release(&self, id: &AttachmentId) -> Result<(), CniError> {
        for addr in self.of(id)? {
            remove(&self.dir.join(addr.to_string()))?;
            failpoint("address: released");
            self.mark_free(addr);
        }
        self.indices(id).iter().try_for_each(|path| remove(path))
    }

    /// Takes back whatever none of `valid` has.
    ///
    /// # Errors
    /// [`Code::Io`].
    pub fn keep_only(&self, valid: &[AttachmentId]) -> Result<(), CniError> {
        // A file that was cut short does not say whose it is, but the index does.
        let kept: BTreeSet<IpAddr> = valid.iter().flat_map(|id| self.indexed(id)).collect();
        for (addr, owner) in self.reservations()? {
            let named = valid.iter().any(|id| owner.is(id));
            let indexed = kept.contains(&addr) && owner.is_cut_short(valid);
            if !named && !indexed {
                tracing::info!(%addr, container = owner.container_id, "stale address is taken back");
                remove(&self.dir.join(addr.to_string()))?;
                self.mark_free(addr);
            }
        }
        let index = self.dir.join(INDEX);
        let indices: BTreeSet<PathBuf> = valid.iter().flat_map(|id| self.indices(id)).collect();
        for entry in std::fs::read_dir(&index).map_err(failed("list", &index))?.filter_map(Result::ok) {
            if !indices.contains(&entry.path()) {
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
        overwrite(&path, addr.to_string().as_bytes()).map_err(failed("write", &path))
    }

    fn last_path(&self, index: usize) -> PathBuf {
        self.dir.join(format!("last_reserved_ip.{index}"))
    }

    fn owner(&self, addr: IpAddr) -> Option<Owner> {
        let text = std::fs::read(self.dir.join(addr.to_string())).ok()?;
        let text = String::from_utf8_lossy(&text);
        let mut lines = text.trim().lines();
        let container_id = lines.next().unwrap_or_default().trim().to_owned();
        Some(Owner { container_id, ifname: lines.next().map(|line| line.trim().to_owned()) })
    }

    fn reservations(&self) -> Result<Vec<(IpAddr, Owner)>, CniError> {
        let taken = self.taken()?.into_iter();
        Ok(taken.filter_map(|addr| self.owner(addr).map(|owner| (addr, owner))).collect())
    }
}

impl Drop for Store {
    /// Nobody else has changed the folder while it was locked.
    fn drop(&mut self) {
        let now = self.now();
        if now != self.stamp
            && let Err(error) = overwrite(&self.dir.join(BOOT), now.as_bytes())
        {
            tracing::debug!(%error, "the address store is read whole the next time");
        }
    }
}

/// Writes over a small file. ext4 writes one that was cut to nothing out at once when it is closed, which takes milliseconds.
fn overwrite(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
    file.write_all_at(bytes, 0)?;
    if file.metadata()?.len() == bytes.len() as u64 { Ok(()) } else { file.set_len(bytes.len() as u64) }
}

fn append(index: &Path, addr: IpAddr) -> Result<(), CniError> {
    let mut file = OpenOptions::new().create(true).append(true).open(index).map_err(failed("open", index))?;
    // One call, so that no line is cut in two by a kill; and on a line of its own, whatever was left before it.
    file.write_all(format!("\n{addr}\n").as_bytes()).map_err(failed("write", index))
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

    /// True if what is left of the name is the beginning of one of `valid`.
    fn is_cut_short(&self, valid: &[AttachmentId]) -> bool {
        valid.iter().any(|id| {
            let whole = format!("{}\n{}", id.container_id, id.ifname);
            let left = match &self.ifname {
                Some(ifname) => format!("{}\n{ifname}", self.container_id),
                None => self.container_id.clone(),
            };
            whole.starts_with(&left)
        })
    }
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
