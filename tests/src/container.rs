//! Containers of maitred's image, run by podman with a storage of their own.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{ports, project_root, wait};

/// The user of maitred in its image, `www-data` of Debian.
pub const IMAGE_USER: u32 = 33;

/// Images and containers below a folder.
#[derive(Debug)]
pub struct Containers {
    /// The target folder of `scripts/image`.
    target: PathBuf,
}

impl Containers {
    /// Builds the image `maitred:X.Y` with packages.
    ///
    /// # Panics
    /// When it cannot be built.
    pub fn with_image_of(packages: &Path, target: &Path) -> Containers {
        let mut build = Command::new("scripts/image");
        build.current_dir(project_root()).env("PACKAGES", packages).env("ARCHIVE", "no");
        said(build.env("CARGO_TARGET_DIR", target));
        let containers = Containers { target: target.to_owned() };
        containers.write_settings();
        // What other versions of the image have left.
        said(containers.podman().args(["image", "prune", "--force"]));
        containers
    }

    /// The name of the image.
    ///
    /// # Panics
    /// When it has not been built.
    pub fn image(&self) -> String {
        let listed = said(self.podman().args(["images", "--format", "{{.Repository}}:{{.Tag}}"]));
        let image = listed.lines().find(|name| name.starts_with("localhost/maitred:"));
        image.unwrap_or_else(|| panic!("no image of maitred: {listed}")).to_owned()
    }

    /// No limit is above this process's own, which a container's runtime may not exceed.
    fn write_settings(&self) {
        let folder = self.target.join("image");
        let path = |name: &str| folder.join(name).display().to_string();
        let storage = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = {:?}\nrunroot = {:?}\n",
            path("storage"),
            path("run")
        );
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
        let files = files.unwrap_or(1 << 20);
        let engine = format!(
            "[containers]\ndefault_ulimits = [\"nofile={files}:{files}\", \"nproc=4096:4096\"]\n\
             [engine]\nruntime = \"runc\"\ncgroup_manager = \"cgroupfs\"\n\
             events_logger = \"none\"\ntmp_dir = {:?}\n",
            path("tmp")
        );
        fs::write(folder.join("storage.conf"), storage).expect("settings can be written");
        fs::write(folder.join("containers.conf"), engine).expect("settings can be written");
    }

    fn podman(&self) -> Command {
        let folder = self.target.join("image");
        let mut podman = Command::new("podman");
        podman
            .env("CONTAINERS_STORAGE_CONF", folder.join("storage.conf"))
            .env("CONTAINERS_CONF", folder.join("containers.conf"))
            .env("BUILDAH_FORMAT", "docker")
            .env("BUILDAH_ISOLATION", "chroot");
        podman
    }

    /// Builds an image from a folder with a `Containerfile`.
    ///
    /// # Panics
    /// When it cannot be built.
    pub fn build(&self, name: &str, folder: &Path, arguments: &[(&str, &str)]) {
        let mut build = self.podman();
        build.args(["build", "--quiet", "--network", "host", "--tag", name]);
        for (name, value) in arguments {
            build.arg("--build-arg").arg(format!("{name}={value}"));
        }
        said(build.arg(folder));
    }

    /// Starts a container that serves on a free address of this machine.
    ///
    /// # Panics
    /// When it does not serve.
    pub fn run(&self, image: &str, options: &[&str]) -> Container<'_> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("maitred-{}-{number}", std::process::id());
        let address = ports::free_address();
        let mut run = self.podman();
        // Only systemd runs health checks for podman.
        run.args(["run", "--detach", "--no-healthcheck", "--network", "host", "--name", &name]);
        run.arg("--env").arg(format!("MAITRED_LISTEN={address}"));
        said(run.args(options).arg(image));
        let container = Container { containers: self, name, address };
        container.wait_until_it_serves();
        container
    }

    /// What an inspection of an image or container says of a field, in Go's template language.
    pub fn inspect(&self, name: &str, field: &str) -> String {
        said(self.podman().args(["inspect", "--format", field, name]))
    }

    /// Removes a volume.
    pub fn remove_volume(&self, name: &str) {
        said(self.podman().args(["volume", "rm", "--force", name]));
    }
}

/// A running container; it is removed when this is dropped.
#[derive(Debug)]
pub struct Container<'a> {
    containers: &'a Containers,
    /// Its name.
    pub name: String,
    /// Where it serves.
    pub address: SocketAddr,
}

impl Container<'_> {
    fn wait_until_it_serves(&self) {
        let serves = wait::poll(wait::DEADLINE, || {
            (ports::is_listening(self.address) || !self.is_running()).then_some(())
        });
        assert!(serves.is_some() && self.is_running(), "it does not serve: {}", self.log());
    }

    fn is_running(&self) -> bool {
        self.containers.inspect(&self.name, "{{.State.Running}}").trim() == "true"
    }

    /// Standard output and error so far.
    pub fn log(&self) -> String {
        said(self.containers.podman().args(["logs", &self.name]))
    }

    /// Runs a command in it.
    pub fn exec(&self, command: &[&str]) -> String {
        said(self.containers.podman().args(["exec", &self.name]).args(command))
    }

    /// Ends it with a signal and returns its exit code.
    pub fn end(&self, signal: &str) -> String {
        said(self.containers.podman().args(["kill", "--signal", signal, &self.name]));
        said(self.containers.podman().args(["wait", &self.name])).trim().to_owned()
    }

    /// Starts it again.
    pub fn start_again(&self) {
        said(self.containers.podman().args(["start", &self.name]));
        self.wait_until_it_serves();
    }
}

impl Drop for Container<'_> {
    fn drop(&mut self) {
        let mut remove = self.containers.podman();
        let _ = remove.args(["rm", "--force", "--volumes", "--time", "0", &self.name]).output();
    }
}

/// The output of a command that has to succeed.
fn said(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let [out, err] = [stdout, stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(status.success(), "{command:?}: {status}: {out}{err}");
    out + &err
}
