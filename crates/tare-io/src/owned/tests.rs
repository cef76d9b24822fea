use tare_tidy::skips::not_run;

use super::*;

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tare-owned-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&path);
    std::fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn a_mapped_number_is_somebody() {
    assert!(is_mapped("         0          0 4294967295\n", 65534), "the machine itself");
    assert!(is_mapped("0 100000 65536\n", 65534), "as rootless containers are");
    assert!(!is_mapped("0 1000 1\n", 65534), "unshare -r");
    assert!(is_mapped("0 1000 1\n1 100000 65535\n", 65534));
    assert!(is_mapped("what is this\n", 65534));
}

#[test]
fn a_folder_that_a_list_opens_to_somebody_is_refused() {
    let path = folder("list");
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    check(&path).unwrap();
    // Version 2, then (tag, permissions, id) for owner, a user, group, mask and others.
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, !0), (2, 7, 65534), (4, 5, !0), (0x10, 7, !0), (0x20, 5, !0)];
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, who) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(who.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(&path, ACCESS_LIST, &list, flags).is_err() {
        not_run(&format!("the file system of {} has no access control lists", path.display()));
        return;
    }
    let refused = check(&path).unwrap_err().to_string();
    assert!(refused.contains("can be changed by other users"), "{refused}");
    remove_tree(&path).unwrap();
}

#[test]
fn folders_are_removed_however_deep() {
    let path = folder("deep");
    let mut fd = rustix::fs::open(&path, OPEN_FOLDER, Mode::empty()).unwrap();
    for _ in 0..1000 {
        rustix::fs::mkdirat(&fd, "d", Mode::RWXU).unwrap();
        fd = rustix::fs::openat(&fd, "d", OPEN_FOLDER, Mode::empty()).unwrap();
    }
    drop(fd);
    assert!(remove_tree(&path).unwrap());
    assert!(!path.exists());
}
