//! Memory, time and files of this process, from `/proc`.

use super::text::Page;

/// Ticks of a second in `/proc/self/stat`: the same on every machine that Linux has run on for long.
const TICKS: f64 = 100.0;
/// Bytes of a page in `/proc/self/statm`.
const PAGE: f64 = 4096.0;

/// Writes the families; what cannot be read is left out.
pub fn show(page: &mut Page) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name of the process may contain anything; what follows its parenthesis does not.
    let fields: Vec<f64> = stat
        .rsplit_once(") ")
        .map(|(_, rest)| rest.split(' ').skip(1).map(|f| f.trim().parse().unwrap_or(0.0)).collect())
        .unwrap_or_default();
    if let (Some(user), Some(system)) = (fields.get(10), fields.get(11)) {
        let seconds = (user + system) / TICKS;
        page.single("process_cpu_seconds_total", "counter", "Time on a processor, in seconds.", seconds);
    }
    if let (Some(start), Some(boot)) = (fields.get(18), boot_time()) {
        let help = "When the process started, in seconds since 1970.";
        page.single("process_start_time_seconds", "gauge", help, boot + start / TICKS);
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut sizes = statm.split(' ').map(|f| f.parse::<f64>().unwrap_or(0.0) * PAGE);
    if let (Some(virtual_size), Some(resident)) = (sizes.next(), sizes.next()) {
        page.single("process_virtual_memory_bytes", "gauge", "Virtual memory, in bytes.", virtual_size);
        page.single("process_resident_memory_bytes", "gauge", "Resident memory, in bytes.", resident);
    }
    if let Ok(open) = std::fs::read_dir("/proc/self/fd") {
        page.single("process_open_fds", "gauge", "Open file descriptors.", open.count() as f64);
    }
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let most = limits.lines().find_map(|l| l.strip_prefix("Max open files"));
    if let Some(most) = most.and_then(|l| l.split_whitespace().next()?.parse().ok()) {
        page.single("process_max_fds", "gauge", "Most file descriptors that may be open.", most);
    }
}

fn boot_time() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|l| l.strip_prefix("btime "))?.trim().parse().ok()
}
