//! A folder whose lock a tenant holds in the kernel, for as long as it likes: it lists the folder
//! into memory that a FUSE file system does not give, while another process waits to change it.

use std::path::Path;

use tempfile::TempDir;

use crate::http::{Connection, Request, Response};
use crate::server::{Server, document_root, give_to_web_user};
use crate::stuck_files::StuckFiles;
use crate::{Target, wait};

/// Lists a folder into a page of a file. The kernel reads the page with the lock of the folder.
const LISTS: &str = "<?php
$c = FFI::cdef('int open(const char *, int); long syscall(long, int, void *, size_t);
    void *mmap(void *, size_t, int, int, int, long);', 'libc.so.6');
$at = $c->mmap(null, 4096, 3, 0x01, $c->open($_GET['file'], 2), 0);
$list = php_uname('m') === 'x86_64' ? 217 : 61;
$c->syscall($list, $c->open($_GET['folder'], 0200000), $at, 4096);
echo 'released';";

/// Waits for the lock of a folder to change it. Others that want to read it wait behind.
const CHANGES: &str = "<?php
file_put_contents(__DIR__ . '/changes', '');
mkdir($_GET['folder'] . '/changed');
echo 'released';";

/// The pool and the site `other` of the tenant, with these lines, beside another pool.
pub fn other(root: &Path, lines: &str) -> String {
    format!(
        "[pools.other]\npm = \"static\"\nmax_children = 3\n\
         php_admin_value = {{ \"ffi.enable\" = \"1\", extension = \"ffi\" }}\n\
         [[sites]]\nhosts = [\"other\"]\npool = \"other\"\nroot = {root:?}\n{lines}"
    )
}

/// A request to the site.
pub fn request(target: &str) -> Request {
    Request::new("GET", target).header("Host", "other")
}

/// Sends a request to the site.
pub fn send(server: &Server, target: &str) -> Connection {
    let mut sent = Connection::open(server.address());
    sent.send(&request(target).to_bytes()).expect("the server takes a request");
    sent
}

/// The response to a request.
pub fn response(sent: &mut Connection) -> Response {
    sent.read_response(false).expect("a response")
}

/// A document root with a folder `locked` that a tenant owns.
pub fn tenants_root() -> TempDir {
    let root = document_root(&[
        ("lists.php", LISTS),
        ("changes.php", CHANGES),
        ("pid.php", "<?php echo getmypid();"),
        ("locked/hello.html", "hello"),
    ]);
    give_to_web_user(root.path());
    give_to_web_user(&root.path().join("locked"));
    root
}

/// Has the other pool hold the lock of the folder until the files are released.
pub fn hold(server: &Server, files: &StuckFiles, root: &Path) -> [Connection; 2] {
    let (folder, file) = (root.join("locked"), files.unreadable());
    let (folder, file) = (folder.display(), file.display());
    let lists = send(server, &format!("/lists.php?file={file}&folder={folder}"));
    files.wait_for_process();
    let changes = send(server, &format!("/changes.php?folder={folder}"));
    wait::until_true("the change to begin", || root.join("changes").exists());
    [lists, changes]
}
