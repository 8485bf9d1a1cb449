//! Faults of single sites and pools: what this machine lacks for them, while it can serve the
//! others. A fault of the server itself is an error of the start or the reload.

use std::collections::BTreeSet;
use std::path::Path;

use maitred_config::{Config, Destination, Pool, Section, Site, Tls};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Most faults whose sentences a status reply or the outcome of a reload contains.
const MAX_SHOWN: usize = 32;

/// The setting of a pool's FastCGI listener.
const LISTEN: &str = "listen";

/// What a fault takes away.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Loss {
    /// Requests that need this site's folders.
    Site(usize),
    /// Requests for this pool.
    Pool(String),
    /// Requests for some paths of a site.
    Paths,
    /// Connections to a FastCGI listener of a pool, by the name of its setting.
    Listener(String, String),
    /// A log.
    Log,
    /// Commands and schedules of a pool.
    Jobs,
    /// TLS connections for the hosts of the certificate with this number.
    Tls(usize),
    /// The new certificate of some hosts.
    Renewal,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// The section of the setting that is wrong. None: certificates, which have checks of their
    /// own.
    pub section: Option<Section>,
    /// What it takes away.
    pub loss: Loss,
    /// What is wrong and what to do, with its place in the file.
    pub sentence: String,
}

/// The faults of a configuration on this machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    all: Vec<Fault>,
    /// Pools that cannot be started because of a fault of their site.
    stopped: BTreeSet<String>,
}

/// The sections of a configuration that are examined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Examined {
    /// All.
    All,
    /// These.
    Of(BTreeSet<Section>),
}

impl Examined {
    /// Whether this section is.
    pub fn has(&self, section: &Section) -> bool {
        match self {
            Examined::All => true,
            Examined::Of(sections) => sections.contains(section),
        }
    }

    /// The pools that are.
    pub fn pools<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = &'a Pool> {
        config.pools.iter().filter(|pool| self.has(&Section::Pool(pool.name.clone())))
    }

    /// The sites that are, with their numbers.
    pub fn sites<'a>(&'a self, config: &'a Config) -> impl Iterator<Item = (usize, &'a Site)> {
        let sites = config.sites.iter().enumerate();
        sites.filter(|(number, _)| self.has(&Section::Site(*number)))
    }
}

/// What was found wrong with a configuration on this machine.
#[derive(Debug, Default)]
pub struct Findings {
    /// Mistakes that concern the whole server.
    pub mistakes: Vec<Error>,
    /// The faults of single sites and pools.
    pub faults: Faults,
}

impl Loss {
    /// What a mistake in a setting takes away; none: everything.
    fn of(section: &Section, setting: &str) -> Option<Loss> {
        match (section, setting) {
            (Section::Site(_) | Section::Pool(_), "access_log" | "slowlog") => Some(Loss::Log),
            (Section::Site(_), "basic_auth") => Some(Loss::Paths),
            (Section::Site(number), _) => Some(Loss::Site(*number)),
            (Section::Pool(_), "commands" | "schedules") => Some(Loss::Jobs),
            (Section::Pool(name), "listen" | "status_listen") => {
                Some(Loss::Listener(name.clone(), setting.to_owned()))
            }
            (Section::Pool(name), _) => Some(Loss::Pool(name.clone())),
            (Section::Server | Section::Tls, _) => None,
        }
    }

    fn in_words(&self) -> &'static str {
        match self {
            Loss::Site(_) | Loss::Pool(_) | Loss::Paths => {
                "requests that need it get a 503 until then"
            }
            Loss::Jobs => "it does not run until then",
            Loss::Listener(..) => "clients cannot connect to it until then",
            Loss::Log => "nothing is written to it until then",
            Loss::Tls(_) => "TLS connections for its hosts are closed until then",
            Loss::Renewal => "the certificate that was read before is used until then",
        }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}; {}", self.sentence, self.loss.in_words())
    }
}

impl Findings {
    /// Divides errors into those of the whole server and those of single sites and pools, each with
    /// its place in `file`. With php-fpm's configuration each one concerns the server, as there.
    pub fn among(errors: Vec<Error>, config: &Config, file: Option<&Path>) -> Findings {
        let mut found = Findings::default();
        let losses = errors.iter().map(|error| match error {
            Error::Setting { section, setting, .. } if config.fpm.is_none() => {
                Some((Loss::of(section, setting)?, section.clone()))
            }
            _ => None,
        });
        let losses: Vec<_> = losses.collect();
        let errors = match file {
            Some(file) => Error::located(errors, file),
            None => errors,
        };
        for (error, loss) in errors.into_iter().zip(losses) {
            match loss {
                Some((loss, section)) => {
                    let (section, sentence) = (Some(section), error.to_string());
                    found.faults.add(Fault { section, loss, sentence });
                }
                None => found.mistakes.push(error),
            }
        }
        found
    }

    /// Adds what else was found.
    pub fn add(&mut self, other: Findings) {
        self.mistakes.extend(other.mistakes);
        self.faults.extend(other.faults.all);
        self.faults.stopped.extend(other.faults.stopped);
    }

    /// All sentences, where nothing may be wrong.
    pub fn all(self) -> Vec<Error> {
        let faults = self.faults.all.into_iter().map(|fault| Error::Mistakes(fault.sentence));
        self.mistakes.into_iter().chain(faults).collect()
    }

    /// The sentences that prevent a start or a reload: those about the whole server; all of them if
    /// the server is `strict`, or if no site is left to serve.
    pub fn obstacles(&mut self, config: &Config, strict: bool) -> Vec<Error> {
        let is_refused = !self.faults.is_empty() && (strict || self.faults.leave_nothing(config));
        match is_refused {
            true => std::mem::take(self).all(),
            false => std::mem::take(&mut self.mistakes),
        }
    }
}

impl Faults {
    /// Adds a fault, once.
    pub fn add(&mut self, fault: Fault) {
        if !self.all.contains(&fault) {
            self.all.push(fault);
        }
    }

    /// Adds faults, each once.
    pub fn extend(&mut self, faults: impl IntoIterator<Item = Fault>) {
        faults.into_iter().for_each(|fault| self.add(fault));
    }

    /// Replaces the faults of certificates, which log their own.
    pub fn set_certificates(&mut self, faults: impl IntoIterator<Item = Fault>) {
        self.all.retain(|fault| !matches!(fault.loss, Loss::Tls(_) | Loss::Renewal));
        self.extend(faults);
    }

    /// A pool cannot be started because of a fault of its site.
    pub fn stop_pool(&mut self, name: &str) {
        self.stopped.insert(name.to_owned());
    }

    /// The sections that they are about.
    pub fn sections(&self) -> BTreeSet<Section> {
        let stopped = self.stopped.iter().cloned().map(Section::Pool);
        self.all.iter().filter_map(|fault| fault.section.clone()).chain(stopped).collect()
    }

    /// Whether only a check shows that they are mended.
    pub fn need_checks(&self) -> bool {
        !self.stopped.is_empty() || self.all.iter().any(|fault| fault.section.is_some())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Fault> {
        self.all.iter()
    }

    /// Whether a pool cannot be started.
    pub fn stops_pool(&self, name: &str) -> bool {
        let is_its = |fault: &Fault| matches!(&fault.loss, Loss::Pool(pool) if pool == name);
        self.stopped.contains(name) || self.all.iter().any(is_its)
    }

    /// Whether a pool cannot be started because of a fault of its site.
    pub fn stops_with_site(&self, name: &str) -> bool {
        let is_its = |fault: &Fault| matches!(&fault.loss, Loss::Pool(pool) if pool == name);
        self.stopped.contains(name) && !self.all.iter().any(is_its)
    }

    /// Whether the FastCGI listener of a pool cannot be opened; `setting`: the one that names it.
    pub fn closes(&self, pool: &str, setting: &str) -> bool {
        let loss = Loss::Listener(pool.to_owned(), setting.to_owned());
        self.all.iter().any(|fault| fault.loss == loss)
    }

    /// The faults that the other faults do not contain.
    pub fn without(&self, others: &Faults) -> Faults {
        let all = self.all.iter().filter(|fault| !others.all.contains(fault));
        Faults { all: all.cloned().collect(), stopped: BTreeSet::new() }
    }

    /// The first sentences, and the number of the others, for a reply.
    pub fn shown(&self) -> Vec<String> {
        let mut shown: Vec<String> =
            self.all.iter().take(MAX_SHOWN).map(Fault::to_string).collect();
        if let more @ 1.. = self.all.len().saturating_sub(MAX_SHOWN) {
            shown.push(format!("{more} more, which the log has"));
        }
        shown
    }

    /// Whether the server has HTTPS alone, and no certificate of it can be used.
    fn leave_no_http(&self, config: &Config) -> bool {
        let is_lost = |number| self.all.iter().any(|fault| fault.loss == Loss::Tls(number));
        let is_lost = |tls: &Tls| tls.acme.is_none() && (0..tls.certificates.len()).all(is_lost);
        config.listen.is_empty() && config.tls.as_ref().is_some_and(is_lost)
    }

    /// Whether they take every site and every FastCGI listener from the server.
    fn leave_nothing(&self, config: &Config) -> bool {
        let is_lost = |number: usize| {
            self.all.iter().any(|fault| matches!(fault.loss, Loss::Site(site) if site == number))
        };
        let mut sites = config.sites.iter().enumerate();
        let no_site = sites.all(|(number, site)| match &site.destination {
            Destination::Pool(name) => is_lost(number) || self.stops_pool(name),
            Destination::Upstream(_) => is_lost(number),
        });
        let mut listeners = config.pools.iter().filter(|pool| pool.listener.is_some());
        let is_closed =
            |pool: &Pool| self.stops_pool(&pool.name) || self.closes(&pool.name, LISTEN);
        (no_site || self.leave_no_http(config)) && listeners.all(is_closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(sites: &[(&str, &str)]) -> Config {
        let sites = sites.iter().map(|(host, pool)| {
            format!("[[sites]]\nhosts = \"{host}\"\nroot = \"/\"\npool = \"{pool}\"\n")
        });
        let text = format!("[pools.a]\n[pools.b]\n{}", sites.collect::<String>());
        maitred_config::parse(&text, Path::new("/maitred.toml")).unwrap()
    }

    fn wrong(section: Section, setting: &'static str) -> Error {
        Error::Setting { section, setting, said: format!("{setting} is wrong") }
    }

    fn found(config: &Config, errors: Vec<Error>) -> Findings {
        Findings::among(errors, config, None)
    }

    #[test]
    fn a_fault_of_a_site_or_a_pool_leaves_the_others() {
        let config = config(&[("one.test", "a"), ("two.test", "b")]);
        let errors =
            vec![wrong(Section::Site(0), "root"), wrong(Section::Pool("a".to_owned()), "user")];
        let mut findings = found(&config, errors);
        assert!(findings.obstacles(&config, false).is_empty());
        assert!(findings.faults.stops_pool("a") && !findings.faults.stops_pool("b"));
        let shown = findings.faults.shown();
        assert_eq!(shown[0], "root is wrong; requests that need it get a 503 until then");
        assert_eq!(findings.obstacles(&config, true).len(), 2, "unless all are wanted");
    }

    #[test]
    fn each_sentence_has_the_place_of_its_own_setting() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m.toml");
        let text = "[pools.a]\nuser = \"u\"\n[[sites]]\nroot = \"/a\"\nhosts = \"a\"\n";
        std::fs::write(&file, text).unwrap();
        let config = config(&[("one.test", "a")]);
        let errors = vec![
            wrong(Section::Site(0), "root"),
            Error::Configuration("something else".to_owned()),
            wrong(Section::Pool("a".to_owned()), "user"),
            wrong(Section::Server, "front_user"),
        ];
        let findings = Findings::among(errors, &config, Some(&file));
        let path = file.display();
        let faults: Vec<_> = findings.faults.iter().map(|fault| &fault.sentence).collect();
        assert_eq!(
            faults,
            [&format!("{path}:4:8: root is wrong"), &format!("{path}:2:8: user is wrong")]
        );
        let mistakes: Vec<_> = findings.mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(mistakes, ["something else", "front_user is wrong"]);
    }

    #[test]
    fn a_missing_file_of_users_leaves_the_other_paths_of_the_only_site() {
        let config = config(&[("one.test", "a")]);
        let errors = vec![wrong(Section::Site(0), "basic_auth")];
        assert!(found(&config, errors).obstacles(&config, false).is_empty());
    }

    #[test]
    fn a_listener_that_cannot_be_opened_leaves_its_pool() {
        let config = config(&[("one.test", "a")]);
        let mut findings = found(&config, vec![wrong(Section::Pool("a".to_owned()), LISTEN)]);
        assert!(findings.obstacles(&config, false).is_empty());
        assert!(!findings.faults.stops_pool("a") && findings.faults.closes("a", LISTEN));
        let text = "[pools.a]\nlisten = \"/nowhere/a.sock\"\n";
        let config = maitred_config::parse(text, Path::new("/maitred.toml")).unwrap();
        let errors = vec![wrong(Section::Pool("a".to_owned()), LISTEN)];
        assert_eq!(self::found(&config, errors).obstacles(&config, false).len(), 1, "no other");
    }

    #[test]
    fn faults_that_leave_no_site_prevent_the_start() {
        let config = config(&[("one.test", "a"), ("two.test", "b")]);
        let errors =
            vec![wrong(Section::Site(0), "root"), wrong(Section::Pool("b".to_owned()), "user")];
        assert_eq!(found(&config, errors).obstacles(&config, false).len(), 2);
    }

    #[test]
    fn a_mistake_in_a_setting_of_the_server_prevents_the_start_and_a_missing_log_does_not() {
        let config = config(&[("one.test", "a")]);
        let errors =
            vec![wrong(Section::Server, "front_user"), wrong(Section::Site(0), "access_log")];
        let mut findings = found(&config, errors);
        assert_eq!(findings.obstacles(&config, false).len(), 1);
        assert_eq!(findings.faults.iter().count(), 1);
    }
}
