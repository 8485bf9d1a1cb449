//! A terminal for programs under test.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

/// A terminal, and what was written to it.
#[derive(Debug)]
pub struct Terminal {
    ours: OwnedFd,
    theirs: File,
    /// As it came: a read may end within a character.
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    /// A terminal of 80 columns and 24 lines.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&ours).expect("a terminal of ours");
        unlockpt(&ours).expect("a terminal to open");
        let name = ptsname(&ours, Vec::new()).expect("a terminal has a name");
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&ours, size).expect("a terminal has a size");
        let name = name.into_string().expect("a name");
        let theirs = File::options().read(true).write(true).open(name);
        let shown = Arc::new(Mutex::new(Vec::new()));
        let screen = File::from(ours.try_clone().expect("a descriptor"));
        let kept = shown.clone();
        std::thread::spawn(move || keep(screen, &kept));
        Terminal { ours, theirs: theirs.expect("the other side of a terminal"), shown }
    }

    /// The terminal, for a program's standard input, output or error.
    pub fn stdio(&self) -> Stdio {
        self.theirs.try_clone().expect("a descriptor").into()
    }

    /// Whether this text was written to it.
    pub fn shows(&self, text: &str) -> bool {
        self.text().contains(text)
    }

    /// All that was written to it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().expect("a lock")).into_owned()
    }

    /// Presses keys.
    pub fn press(&self, keys: &[u8]) {
        rustix::io::write(&self.ours, keys).expect("a key");
    }

    /// Whether keys reach the program at once, and not with their line.
    pub fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.ours).expect("a terminal has modes");
        !modes.local_modes.contains(LocalModes::ICANON)
    }
}

/// Until the other side is closed.
fn keep(mut screen: File, shown: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = screen.read(&mut buffer) {
        shown.lock().expect("a lock").extend_from_slice(&buffer[..count]);
    }
}
