use std::path::Path;

use super::*;
use crate::runtime::lookup_turns::AllTurns;

fn root(path: &Path) -> Arc<Root> {
    let name = path.as_os_str().as_encoded_bytes();
    Arc::new(Root::open(path, name, rustix::process::geteuid().as_raw()).unwrap())
}

#[tokio::test]
async fn work_that_begins_again_sees_what_the_kernel_has_now() {
    // A file system that caches names that do not exist.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let root = root(folder.path());
    let tenant = AllTurns::default().of("");
    let mut runs = 0;
    let seen = run(&tenant, || {
        runs += 1;
        let first = look(&root, b"/first").is_ok();
        let second = look(&root, b"/second").is_ok();
        if runs == 2 {
            std::fs::write(folder.path().join("first"), "").unwrap();
        }
        (first, second)
    });
    assert_eq!(seen.await.unwrap(), (true, false));
    assert_eq!(runs, 3);
}

#[tokio::test]
async fn contents_are_read_in_work_and_outside_of_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "0123456789").unwrap();
    let root = root(folder.path());
    let read = || {
        let opened = open(&root, b"/a")?;
        let file = FoundFile { root: &root, path: b"/a", fd: &opened.fd };
        file.read(Identity::of(&opened.stat), 4)
    };
    assert_eq!(read().unwrap().bytes, "0123");
    let read = run(&AllTurns::default().of(""), read).await.unwrap();
    assert_eq!(read.unwrap().bytes, "0123");
}
