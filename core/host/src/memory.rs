//! How much memory there is, for budgets.

/// Total memory in bytes: of the machine, or of the group of processes we are confined to.
pub(crate) fn total_bytes() -> u64 {
    let machine = meminfo("MemTotal:").unwrap_or(0);
    group_limit().map_or(machine, |limit| limit.min(machine))
}

/// What could be allocated without making others swap.
pub(crate) fn available_bytes() -> u64 {
    let machine = meminfo("MemAvailable:").unwrap_or(0);
    let used = group_value("memory.current").unwrap_or(0);
    group_limit().map_or(machine, |limit| limit.saturating_sub(used).min(machine))
}

fn meminfo(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim_end().parse().ok()?;
    Some(kilobytes * 1024)
}

/// The limit of our control group, as containers see it.
fn group_limit() -> Option<u64> {
    group_value("memory.max")
}

fn group_value(name: &str) -> Option<u64> {
    std::fs::read_to_string(format!("/sys/fs/cgroup/{name}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}
