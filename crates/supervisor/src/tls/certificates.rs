//! Certificates and keys of files: read with the supervisor's rights, checked, sent to the front,
//! and read again when they have changed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use maitred_config::{CertificateFiles, ClientCertificates, Config, Tls};
use maitred_control::ToFront;
use maitred_os::shared;
use maitred_os::walk::{self, Rule};
use maitred_tls::{Clients, Fault, FileWriter, Material, Pair, PemFile, Secret, Server, Validity};
use tracing::{error, info, warn};

use crate::error::Error;
use crate::limits::{BAD_CERTIFICATES_CHECKED_EVERY, Moment};
use crate::peer::Peer;
use crate::system::faults::{self, Loss};
use crate::tls::acme::hosts::{self, AcmeHosts};
use crate::tls::acme::schedule::AcmeHost;
use crate::tls::host_owners::{self, HostOwners};

/// Largest file, in bytes: all roots of browsers are a fifth of it.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Interval of file checks.
pub const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How long files have to be unchanged before they are read: a renewal writes several.
const SETTLES: Duration = Duration::from_secs(2);

/// A file's identity and last change, and who may have written it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    seconds: i64,
    nanoseconds: i64,
    bytes: u64,
    writer: FileWriter,
}

type FileStamps = Vec<Option<FileStamp>>;

/// The certificates in use, and their files.
#[derive(Debug)]
pub struct Certificates {
    material: Material,
    server: Server,
    /// Hosts with certificates by ACME.
    found: AcmeHosts,
    /// Files that cannot be used.
    faults: Vec<faults::Fault>,
    /// The files when they were read; none: the previous program has read them.
    stamps: Option<FileStamps>,
    /// The files at the last check, if they have changed and may change further.
    changing: Option<FileStamps>,
    next_look: Moment,
    /// Files that a warning was logged for.
    logged: BTreeSet<String>,
    /// A copy for the program that takes over.
    left: Option<OwnedFd>,
}

impl Certificates {
    /// Reads and checks the files of a configuration; none without TLS. The session tickets of
    /// `before` stay valid.
    ///
    /// # Errors
    /// The first mistake, with its file and line.
    pub fn of(
        config: &Config,
        before: Option<&Certificates>,
    ) -> Result<Option<Certificates>, Error> {
        let Some(tls) = &config.tls else {
            return Ok(None);
        };
        let mut secret = match before {
            Some(before) => before.material.tickets.clone(),
            None => Secret::new(SystemTime::now()).map_err(Error::Configuration)?,
        };
        secret.move_on(SystemTime::now());
        let stamps = stamps(tls);
        let Reading { material, server, found, faults } =
            read(config, tls, before.map(|before| &before.material), secret)?;
        Ok(Some(Certificates {
            material,
            server,
            found,
            faults,
            stamps: Some(stamps),
            changing: None,
            next_look: before.map_or(Moment::ZERO, |before| before.next_look),
            logged: BTreeSet::new(),
            left: None,
        }))
    }

    /// Takes over the previous program's certificates from `file`. Whether the files have changed
    /// meanwhile shows at the next check.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn inherited(file: OwnedFd) -> io::Result<Certificates> {
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes)?;
        // A parser's error could quote a key.
        let parsed: Result<Material, _> = serde_json::from_slice(&bytes);
        let mut material = parsed.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        material.tickets.move_on(SystemTime::now());
        let server = Server::new(&material, &[]).map_err(io::Error::other)?;
        Ok(Certificates {
            material,
            server,
            found: AcmeHosts::default(),
            faults: Vec::new(),
            stamps: None,
            changing: None,
            next_look: Moment::ZERO,
            logged: BTreeSet::new(),
            left: None,
        })
    }

    /// Checks the files if that is due. True if other certificates are to be used from now on.
    pub fn check_files(&mut self, config: &Config, tls: &Tls, now: Moment) -> bool {
        let is_new = self.look(config, tls, now);
        self.complain();
        if is_new {
            info!("the files of certificates have changed; they are used from now on");
        }
        is_new
    }

    /// Whether handshakes are done with the same material as with `other`.
    pub fn is_same_as(&self, other: &Certificates) -> bool {
        self.material == other.material
    }

    /// Sends a front its certificates and keys.
    pub fn tell(&self, front: &mut Peer<ToFront>) {
        match self.written() {
            Ok(file) => front.say(ToFront::SetCertificates, &[file.as_fd()]),
            Err(why) => error!("the front cannot be sent its certificates: {why}"),
        }
    }

    fn written(&self) -> io::Result<OwnedFd> {
        let json = serde_json::to_vec(&self.material)?;
        shared::file_with("maitred-certificates", &json)
    }

    /// Writes a copy for the program that takes over.
    pub fn leave(&mut self) {
        self.left = match self.written() {
            Ok(file) => Some(file),
            Err(why) => {
                error!("the next program has to read its certificates again: {why}");
                None
            }
        };
    }

    /// The descriptor of that copy.
    pub fn left(&self) -> Option<RawFd> {
        self.left.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The files that cannot be used.
    pub fn faults(&self) -> impl Iterator<Item = faults::Fault> {
        self.faults.iter().cloned()
    }

    /// When the files are checked next.
    pub fn deadline(&self) -> Moment {
        self.next_look
    }

    /// The hosts with certificates by ACME.
    pub fn wanted(&self) -> &[AcmeHost] {
        &self.found.wanted
    }

    /// Uses the issued certificate of a host. False when the host does not need it any more.
    ///
    /// # Errors
    /// When it cannot be used; nothing is changed then.
    pub fn take_issued(&mut self, name: &str, pair: Pair, valid: Validity) -> Result<bool, Fault> {
        let mut wanted = self.found.wanted.iter_mut();
        let Some(wanted) = wanted.find(|wanted| wanted.name == name) else {
            return Ok(false);
        };
        let mut material = self.material.clone();
        material.awaited.retain(|awaited| awaited != name);
        let pairs = &mut material.certificates;
        match pairs.iter_mut().find(|old| old.cert.path == pair.cert.path) {
            Some(old) => *old = pair,
            None => pairs.push(pair),
        }
        self.server = Server::new(&material, &[])?;
        (self.material, wanted.valid) = (material, Some(valid));
        self.logged.clear();
        Ok(true)
    }

    /// Checks the files. True when other certificates are to be used from now on.
    fn look(&mut self, config: &Config, tls: &Tls, now: Moment) -> bool {
        self.material.tickets.move_on(SystemTime::now());
        self.next_look = now + LOOK_EVERY;
        let found = stamps(tls);
        let is_same = self.stamps.as_ref() == Some(&found);
        if is_same && self.faults.is_empty() {
            self.changing = None;
            return false;
        }
        if !self.faults.is_empty() {
            // Changed rights to read a file do not show in its stamp.
            self.next_look = now + BAD_CERTIFICATES_CHECKED_EVERY;
        }
        if !is_same && self.changing.as_ref() != Some(&found) {
            self.changing = Some(found);
            self.next_look = now + SETTLES;
            return false;
        }
        self.changing = None;
        self.stamps = Some(found);
        match read(config, tls, Some(&self.material), self.material.tickets.clone()) {
            Ok(Reading { material, server, found, faults }) => {
                for fault in faults.iter().filter(|fault| !self.faults.contains(fault)) {
                    error!("{fault}");
                }
                (self.found, self.faults) = (found, faults);
                if material == self.material {
                    return false;
                }
                (self.material, self.server) = (material, server);
                self.logged.clear();
                true
            }
            Err(why) => {
                error!("{why}; the certificates that were read before are used further");
                false
            }
        }
    }

    /// Logs problems that clients will have with certificates, once for each.
    pub fn complain(&mut self) {
        for (file, complaint) in self.server.complaints(SystemTime::now()) {
            if self.logged.insert(file) {
                warn!("{complaint}");
            }
        }
        for note in std::mem::take(&mut self.found.notes) {
            warn!("{note}");
        }
    }

    /// Problems that clients will have with certificates.
    pub fn complaints(&self) -> Vec<String> {
        let complaints = self.server.complaints(SystemTime::now()).into_iter();
        let complaints = complaints.map(|(_, complaint)| complaint);
        complaints.chain(self.found.notes.iter().cloned()).collect()
    }
}

fn refused(fault: Fault) -> Error {
    Error::Configuration(fault.to_string())
}

/// The checked files.
fn files(tls: &Tls) -> impl Iterator<Item = &PathBuf> {
    let certificates = tls.certificates.iter();
    let files = certificates.flat_map(|files| [&files.cert, &files.key]);
    files.chain(&tls.client_ca)
}

fn stamps(tls: &Tls) -> FileStamps {
    let stamp = |path: &PathBuf| {
        let found = fs::metadata(path).ok()?;
        Some(FileStamp {
            device: found.dev(),
            inode: found.ino(),
            seconds: found.mtime(),
            nanoseconds: found.mtime_nsec(),
            bytes: found.size(),
            writer: host_owners::writer_of(&found),
        })
    };
    files(tls).map(stamp).collect()
}

/// The contents of the files.
struct Reading {
    material: Material,
    server: Server,
    found: AcmeHosts,
    faults: Vec<faults::Fault>,
}

/// Reads the files. In place of a certificate that cannot be used, that of `before` is used.
fn read(
    config: &Config,
    tls: &Tls,
    before: Option<&Material>,
    tickets: Secret,
) -> Result<Reading, Error> {
    let mut faults = Vec::new();
    let mut material = settings(tls, tickets).map_err(refused)?;
    let owners = HostOwners::of(config);
    material.certificates = pairs(tls, before, &owners, &mut faults);
    let notes = owners.notes(&material.certificates);
    let mut server = Server::new(&material, &[]).map_err(refused)?;
    if faults.iter().any(|fault| matches!(fault.loss, Loss::Tls(_))) {
        let hosts = config.sites.iter().flat_map(|site| &site.hosts).map(ToString::to_string);
        material.closed = hosts.filter(|host| !server.covers(host)).collect();
    }
    let mut found = AcmeHosts::default();
    if let Some(acme) = &tls.acme {
        found = hosts::add_kept(config, acme, &server, &mut material)?;
    }
    found.notes.extend(notes);
    if !material.closed.is_empty() || !found.wanted.is_empty() {
        server = Server::new(&material, &[]).map_err(refused)?;
    }
    Ok(Reading { material, server, found, faults })
}

/// The certificates that can be used; the faults of the others.
fn pairs(
    tls: &Tls,
    before: Option<&Material>,
    owners: &HostOwners,
    faults: &mut Vec<faults::Fault>,
) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (number, files) in tls.certificates.iter().enumerate() {
        let wrong = match usable(files, owners) {
            Ok(pair) => {
                pairs.push(pair);
                continue;
            }
            Err(wrong) => wrong,
        };
        let mut old = before.iter().flat_map(|before| &before.certificates);
        let old = old.find(|pair| pair.cert.path == files.cert);
        let loss = if old.is_some() { Loss::Renewal } else { Loss::Tls(number) };
        faults.extend(wrong.into_iter().map(|fault| faults::Fault {
            section: None,
            loss: loss.clone(),
            sentence: fault.to_string(),
        }));
        // The hosts and their users may be others than when it was read.
        pairs.extend(old.and_then(|pair| owners.with_yields(pair.clone()).ok()));
    }
    pairs
}

/// A certificate and its key; the faults of both files.
fn usable(files: &CertificateFiles, owners: &HostOwners) -> Result<Pair, Vec<Fault>> {
    match (read_with_writer(&files.cert), read_file(&files.key)) {
        (Ok(WrittenFile { file, writer }), Ok(key)) => {
            let pair = Pair { writer, ..Pair::new(file, key) };
            owners.with_yields(pair).map_err(|fault| vec![fault])
        }
        (cert, key) => Err(cert.err().into_iter().chain(key.err()).collect()),
    }
}

/// The settings of handshakes, without certificates.
fn settings(tls: &Tls, tickets: Secret) -> Result<Material, Fault> {
    let ca =
        tls.client_ca.as_deref().filter(|_| tls.client_certificates != ClientCertificates::Off);
    let clients = ca.map(|ca| {
        Ok(Clients {
            ca: read_file(ca)?,
            required: tls.client_certificates == ClientCertificates::Required,
        })
    });
    Ok(Material {
        certificates: Vec::new(),
        awaited: Vec::new(),
        closed: Vec::new(),
        min_version: tls.min_version,
        hsts: tls.hsts,
        hsts_include_subdomains: tls.hsts_include_subdomains,
        hsts_preload: tls.hsts_preload,
        clients: clients.transpose()?,
        tickets,
    })
}

/// Reads a file of a bounded size.
///
/// # Errors
/// Why it cannot be read.
pub fn read_file(path: &Path) -> Result<PemFile, Fault> {
    read_with_writer(path).map(|found| found.file)
}

/// A file, and who may have written it.
struct WrittenFile {
    file: PemFile,
    writer: FileWriter,
}

fn read_with_writer(path: &Path) -> Result<WrittenFile, Fault> {
    let mut writer = FileWriter::Several;
    let mut bytes = Vec::new();
    // A certificate may be in a tenant's folder: a link there leads to no key of another user.
    let opened = walk::open_to_read(path, Rule::of_reader());
    let read = opened.and_then(|file| {
        writer = host_owners::writer_of(&file.metadata()?);
        file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)
    });
    if let Err(why) = read {
        let sentence = format!("it cannot be read: {why}; correct the path or its rights");
        return Err(Fault::of(path, sentence));
    }
    if bytes.len() as u64 > MAX_FILE_BYTES {
        let sentence = format!("it has more than {MAX_FILE_BYTES} bytes; expected a PEM file");
        return Err(Fault::of(path, sentence));
    }
    Ok(WrittenFile { file: PemFile::new(path.to_path_buf(), &bytes), writer })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_in_place_of_a_certificate_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let fault = read_file(folder.path()).unwrap_err().to_string();
        assert!(fault.contains("it cannot be read: Is a directory"), "{fault}");
    }

    #[test]
    fn a_file_that_is_too_long_or_irregular_is_not_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1_048_577).unwrap();
        let fault = read_file(file.path()).unwrap_err().to_string();
        assert!(
            fault.ends_with(": it has more than 1048576 bytes; expected a PEM file"),
            "{fault}"
        );
        let fault = read_file(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(
            fault.starts_with("/dev/zero: it cannot be read: it is no regular file"),
            "{fault}"
        );
    }

    #[test]
    fn changed_rights_to_write_a_certificate_are_noticed_without_a_change_of_its_contents() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_path_buf();
        let certificates = vec![CertificateFiles { cert: path.clone(), key: path }];
        let tls = Tls { certificates, ..Tls::default() };
        let of = |mode| {
            file.as_file().set_permissions(fs::Permissions::from_mode(mode)).unwrap();
            stamps(&tls)
        };
        let before = of(0o644);
        assert_eq!(of(0o640), before);
        assert_ne!(of(0o664), before);
    }
}
