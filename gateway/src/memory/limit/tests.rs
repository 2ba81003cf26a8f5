//! Limits of machines and containers, from files as they are found there.

use tempfile::TempDir;

use super::*;

const TWO: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
const ONE: &str = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n";
const GIB: u64 = 1 << 30;

/// A system of these files, with 8 GiB.
fn system(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let standard = [
        ("proc/self/statm", "9000 1000 500 10 0 800 0\n"),
        ("proc/meminfo", "MemTotal:        8388608 kB\nMemFree:          100 kB\n"),
    ];
    for (path, text) in standard.iter().chain(files) {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

/// Its limit, in MiB, and what is used of it.
fn check(files: &[(&str, &str)], told: Option<u64>, expected: Option<(u64, &str, u64)>) {
    let root = system(files);
    let limit = Limit::find_under(root.path(), told);
    let found = limit.as_ref().map(|limit| {
        let source = limit.source.strip_prefix(root.path().to_str().unwrap()).unwrap_or(&limit.source);
        (limit.bytes >> 20, source.trim_start_matches('/'), limit.meter.read().unwrap())
    });
    assert_eq!(found, expected);
}

fn resident() -> u64 {
    1000 * Meter::page_bytes()
}

#[test]
fn a_flag_is_taken_as_it_is_and_nought_is_none() {
    check(&[], Some(2 * GIB), Some((2048, "--memory-limit", resident())));
    check(&[], Some(0), None);
}

#[test]
fn without_groups_it_is_half_the_machine() {
    check(&[], None, Some((4095, "the machine's memory", resident())));
    let unlimited = [
        ("proc/self/cgroup", "4:memory:/a\n0::/\n"),
        ("proc/self/mountinfo", ONE),
        ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "9223372036854771712\n"),
    ];
    check(&unlimited, None, Some((4095, "the machine's memory", resident())));
}

#[test]
fn the_lowest_limit_upwards_counts_and_that_group_is_measured() {
    let files = [
        ("proc/self/cgroup", "0::/kubepods/pod1/usher\n"),
        ("proc/self/mountinfo", TWO),
        ("sys/fs/cgroup/kubepods/memory.max", "max\n"),
        ("sys/fs/cgroup/kubepods/pod1/memory.max", "1073741824\n"),
        ("sys/fs/cgroup/kubepods/pod1/memory.high", "max\n"),
        ("sys/fs/cgroup/kubepods/pod1/memory.current", "5000\n"),
        ("sys/fs/cgroup/kubepods/pod1/memory.stat", "anon 1\ninactive_file 1200\nactive_file 7\n"),
        ("sys/fs/cgroup/kubepods/pod1/usher/memory.max", "2147483648\n"),
    ];
    check(&files, None, Some((972, "sys/fs/cgroup/kubepods/pod1", 3800)));
    let slowed = [&files[..], &[("sys/fs/cgroup/kubepods/pod1/memory.high", "536870912\n")]].concat();
    check(&slowed, None, Some((486, "sys/fs/cgroup/kubepods/pod1", 3800)));
}

#[test]
fn a_container_finds_its_group_at_the_top_of_its_mount() {
    let mount = "800 700 0:32 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    let files = [
        ("proc/self/cgroup", "9:cpu,cpuacct:/docker/abc\n4:memory:/docker/abc\n"),
        ("proc/self/mountinfo", mount),
        ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
        ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n"),
        ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 1200\n"),
    ];
    check(&files, None, Some((972, "sys/fs/cgroup/memory", 3800)));
}
