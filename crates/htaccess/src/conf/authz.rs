//! Require and its containers (mod_authz_core).

use std::sync::Arc;

use ipnet::IpNet;

use crate::conf::access_compat::{NO_LOOK_UP, may_be_host, parse_network};
use crate::expr::{Condition, Evaluation};
use crate::process::Scope;
use crate::regex::TooCostly;
use crate::weight::{Shared, Weight, weight_of};
use crate::words::Words;

/// Methods with a number of their own (`ap_method_registry_init`). GET stands for HEAD as well.
const METHODS: [&str; 26] = [
    "GET",
    "PUT",
    "POST",
    "DELETE",
    "CONNECT",
    "OPTIONS",
    "TRACE",
    "PATCH",
    "PROPFIND",
    "PROPPATCH",
    "MKCOL",
    "COPY",
    "MOVE",
    "LOCK",
    "UNLOCK",
    "VERSION-CONTROL",
    "CHECKOUT",
    "UNCHECKOUT",
    "CHECKIN",
    "UPDATE",
    "LABEL",
    "REPORT",
    "MKWORKSPACE",
    "MKACTIVITY",
    "BASELINE-CONTROL",
    "MERGE",
];

/// A set of methods: a bit for each of [`METHODS`], and one for all others together. All of them
/// where no `<Limit>` is around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Methods(u32);

impl Default for Methods {
    fn default() -> Methods {
        Methods(u32::MAX)
    }
}

impl Methods {
    /// Those of a list.
    ///
    /// # Errors
    /// A name that is none of [`METHODS`].
    pub fn of(names: &[Vec<u8>]) -> Result<Methods, Vec<u8>> {
        names.iter().try_fold(Methods(0), |all, name| match number(name) {
            Some(number) => Ok(Methods(all.0 | 1 << number)),
            None => Err(name.clone()),
        })
    }

    /// All others.
    #[must_use]
    pub fn others(self) -> Methods {
        Methods(!self.0)
    }

    /// Those of a `<Limit>` or `<LimitExcept>` within these (`ap_limit_section`).
    ///
    /// # Errors
    /// If that makes no difference.
    pub fn limited_to(self, inner: Methods) -> Result<Methods, &'static str> {
        match self.0 & inner.0 {
            0 => Err("directive excludes all methods"),
            both if both == self.0 => Err("directive specifies methods already excluded"),
            both => Ok(Methods(both)),
        }
    }

    /// Whether these are all.
    pub fn are_all(self) -> bool {
        self == Methods::default()
    }

    /// Whether a method is among them.
    pub fn contain(self, method: &[u8]) -> bool {
        self.0 & 1 << number(method).unwrap_or(METHODS.len()) != 0
    }
}

fn number(method: &[u8]) -> Option<usize> {
    let method: &[u8] = if method == b"HEAD" { b"GET" } else { method };
    METHODS.iter().position(|name| name.as_bytes() == method)
}

/// The configuration of mod_authz_core.
#[derive(Debug, Clone, Default)]
pub struct AuthzConf {
    /// The requirements.
    pub section: Option<Arc<Section>>,
    /// `AuthMerging`.
    pub merging: Option<Merging>,
    /// `AuthzSendForbiddenOnFailure`.
    pub forbids_on_failure: Option<bool>,
    /// A line cannot be understood: no client has access, whatever `Satisfy` says.
    pub denies: bool,
}

/// `AuthMerging`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Merging {
    /// A directory's requirements replace its parent's.
    Off,
    /// Both have to be met.
    And,
    /// One of both.
    Or,
}

/// A container of requirements.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// All have to be met, not one of them.
    pub is_all: bool,
    /// `<RequireNone>`.
    pub is_negated: bool,
    children: Vec<Requirement>,
}

#[derive(Debug, Clone)]
enum Requirement {
    Section(Section),
    Provider { provider: Provider, is_negated: bool, methods: Methods },
}

#[derive(Debug, Clone)]
enum Provider {
    All(bool),
    Method(Methods),
    Ip(Vec<IpNet>),
    /// Never looked up: no client has one. Whether one of them may be a host name.
    Host(bool),
    Local,
    Env(Vec<Vec<u8>>),
    Expression(Arc<Condition>),
    ValidUser,
    User(Vec<Vec<u8>>),
    Group(Vec<Vec<u8>>),
    /// One that is not there: it never grants.
    Unknown,
}

/// The result of a requirement (`authz_status`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Granted {
    /// The requirement is met.
    Yes,
    /// It is not.
    No,
    /// It says nothing.
    Neutral,
    /// An authenticated user may meet it.
    WithUser,
}

impl AuthzConf {
    /// The configuration below another one (`merge_authz_core_dir_config`).
    pub fn below(&self, base: &AuthzConf) -> AuthzConf {
        let replaces = match self.merging {
            None => self.section.is_some(),
            Some(merging) => merging == Merging::Off,
        };
        let denies = self.denies || (base.denies && !replaces);
        let (section, merging) = match self.merging {
            None if self.section.is_none() => (base.section.clone(), base.merging),
            None | Some(Merging::Off) => (self.section.clone(), self.merging),
            Some(merging) => {
                let section = match (&base.section, &self.section) {
                    (Some(base), Some(own)) => {
                        let parts = [base, own].map(|part| Requirement::Section((**part).clone()));
                        let is_all = merging == Merging::And;
                        let children = parts.to_vec();
                        Some(Arc::new(Section { is_all, is_negated: false, children }))
                    }
                    (base, own) => base.as_ref().or(own.as_ref()).cloned(),
                };
                (section, self.merging)
            }
        };
        let forbids_on_failure = self.forbids_on_failure.or(base.forbids_on_failure);
        AuthzConf { section, merging, forbids_on_failure, denies }
    }

    /// `Require all granted`, as a server has it for its document roots.
    pub fn grant_all(&mut self) {
        let (provider, methods) = (Provider::All(true), Methods::default());
        let requirement = Requirement::Provider { provider, is_negated: false, methods };
        self.section_mut().children.push(requirement);
    }

    /// Denies, for a line that cannot be understood.
    pub fn deny(&mut self) {
        self.denies = true;
        let section = self.section_mut();
        section.is_all = true;
        let (provider, methods) = (Provider::All(false), Methods::default());
        section.children.push(Requirement::Provider { provider, is_negated: false, methods });
    }

    /// Adds a requirement outside of a container.
    pub fn section_mut(&mut self) -> &mut Section {
        Arc::make_mut(self.section.get_or_insert_with(Arc::default))
    }
}

impl Section {
    /// An empty container.
    pub fn new(is_all: bool, is_negated: bool) -> Section {
        Section { is_all, is_negated, children: Vec::new() }
    }

    /// Adds `Require`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn require(&mut self, text: &[u8], methods: Methods) -> Result<(), String> {
        let mut words = Words::of(text);
        let mut name = words.word();
        let is_negated = name.eq_ignore_ascii_case(b"not");
        if is_negated {
            name = words.word();
        }
        let provider = Provider::parse(&name, words)?;
        if is_negated && !self.is_all {
            return Err("negative Require directive has no effect in <RequireAny>".to_owned());
        }
        if is_negated && let Some(why) = provider.never_denies() {
            return Err(why.to_owned());
        }
        self.children.push(Requirement::Provider { provider, is_negated, methods });
        Ok(())
    }

    /// Adds a container.
    ///
    /// # Errors
    /// When it is empty, or negated where that has no effect.
    pub fn contain(&mut self, section: Section) -> Result<(), String> {
        if section.children.is_empty() {
            return Err("the container has no authorization directives".to_owned());
        }
        if section.is_negated && !self.is_all {
            return Err("<RequireNone> has no effect in <RequireAny>".to_owned());
        }
        if section.is_negated
            && let Some(why) = section.never_denies()
        {
            return Err(why.to_owned());
        }
        self.children.push(Requirement::Section(section));
        Ok(())
    }

    /// Why a requirement in it that is negated would deny no client.
    fn never_denies(&self) -> Option<&'static str> {
        self.children.iter().find_map(|child| match child {
            Requirement::Section(section) => section.never_denies(),
            Requirement::Provider { provider, .. } => provider.never_denies(),
        })
    }

    /// Whether it has requirements for a method.
    pub fn is_for(&self, method: &[u8]) -> bool {
        self.children.iter().any(|child| match child {
            Requirement::Section(section) => section.is_for(method),
            Requirement::Provider { methods, .. } => methods.contain(method),
        })
    }

    /// Evaluates it (`apply_authz_sections`).
    ///
    /// # Errors
    /// When an expression is too costly: it may be one that denies.
    pub fn check(&self, scope: &Scope<'_>, is_in_all: bool) -> Result<Granted, TooCostly> {
        if !self.is_for(&scope.request.method) {
            return Ok(if is_in_all { Granted::Yes } else { Granted::Neutral });
        }
        let mut result = Granted::Neutral;
        for child in &self.children {
            let found = child.check(scope, self.is_all)?;
            if found == Granted::Neutral {
                continue;
            }
            let (decides, stays) = match self.is_all {
                true => (found == Granted::No, result == Granted::No),
                false => (found == Granted::Yes, result != Granted::No),
            };
            if decides {
                result = found;
                break;
            }
            if result == Granted::Neutral || (found == Granted::WithUser && !stays) {
                result = found;
            }
        }
        Ok(negated(result, self.is_negated))
    }
}

fn negated(result: Granted, is_negated: bool) -> Granted {
    match result {
        Granted::Yes if is_negated => Granted::No,
        Granted::No | Granted::WithUser if is_negated => Granted::Neutral,
        _ => result,
    }
}

impl Requirement {
    fn check(&self, scope: &Scope<'_>, is_in_all: bool) -> Result<Granted, TooCostly> {
        match self {
            Requirement::Section(section) => section.check(scope, is_in_all),
            Requirement::Provider { provider, is_negated, methods } => {
                if !methods.contain(&scope.request.method) {
                    return Ok(if is_in_all { Granted::Yes } else { Granted::Neutral });
                }
                Ok(negated(provider.check(scope)?, *is_negated))
            }
        }
    }
}

impl Provider {
    /// Why it would deny no client if it is negated.
    fn never_denies(&self) -> Option<&'static str> {
        match self {
            Provider::Host(true) => Some(NO_LOOK_UP),
            Provider::Unknown => Some("the server has no such requirement, which never denies"),
            _ => None,
        }
    }

    fn parse(name: &[u8], mut words: Words<'_>) -> Result<Provider, String> {
        let rest = words.rest().to_vec();
        let list = |words: Words<'_>| words.collect::<Vec<_>>();
        Ok(match &name.to_ascii_lowercase()[..] {
            b"all" => match &rest.to_ascii_lowercase()[..] {
                b"granted" => Provider::All(true),
                b"denied" => Provider::All(false),
                _ => {
                    let why = "Argument for 'Require all' must be 'granted' or 'denied'";
                    return Err(why.to_owned());
                }
            },
            b"method" => {
                let methods = Methods::of(&list(words));
                Provider::Method(methods.map_err(|name| {
                    format!("Invalid Method '{}'", String::from_utf8_lossy(&name))
                })?)
            }
            b"ip" => {
                let mut networks = Vec::new();
                for word in words.by_ref() {
                    let said = String::from_utf8_lossy(&word).into_owned();
                    let network = parse_network(&word);
                    networks.push(
                        network
                            .ok_or_else(|| format!("ip address '{said}' appears to be invalid"))?,
                    );
                }
                if networks.is_empty() {
                    return Err("'require ip' requires an argument".to_owned());
                }
                Provider::Ip(networks)
            }
            b"host" | b"forward-dns" => Provider::Host(words.any(|name| may_be_host(&name))),
            b"local" => Provider::Local,
            b"env" => Provider::Env(list(words)),
            b"expr" => {
                let text = words.rest();
                let quoted = text.first().is_some_and(|byte| matches!(byte, b'"' | b'\''));
                let text = if quoted { words.word() } else { text.to_vec() };
                Provider::Expression(Arc::new(Condition::parse(&text)?))
            }
            b"valid-user" => Provider::ValidUser,
            b"user" => Provider::User(list(words)),
            b"group" => Provider::Group(list(words)),
            b"file-owner" | b"file-group" | b"dbm-group" | b"ldap-user" => Provider::Unknown,
            _ => {
                let said = String::from_utf8_lossy(name);
                return Err(format!("Unknown Authz provider: {said}"));
            }
        })
    }

    fn check(&self, scope: &Scope<'_>) -> Result<Granted, TooCostly> {
        let request = scope.request;
        let granted = |yes: bool| if yes { Granted::Yes } else { Granted::No };
        // Read by those alone that need it: the decision then holds for this client only.
        let remote = || scope.client.remote().ip().to_canonical();
        Ok(match self {
            Provider::All(yes) => granted(*yes),
            Provider::Method(methods) => granted(methods.contain(&request.method)),
            Provider::Ip(networks) => {
                let remote = remote();
                granted(networks.iter().any(|net| net.contains(&remote)))
            }
            Provider::Host(_) | Provider::Unknown => Granted::No,
            Provider::Local => {
                let remote = remote();
                granted(remote.is_loopback() || remote == scope.client.local().ip().to_canonical())
            }
            Provider::Env(names) => {
                granted(names.iter().any(|name| request.env.get(name).is_some()))
            }
            Provider::Expression(condition) => {
                let uses_user = memchr::memmem::find(&condition.text, b"REMOTE_USER").is_some();
                match Evaluation::new(scope).holds(condition)? {
                    true => Granted::Yes,
                    false if uses_user && request.user.is_none() => Granted::WithUser,
                    false => Granted::No,
                }
            }
            Provider::ValidUser => match request.user {
                Some(_) => Granted::Yes,
                None => Granted::WithUser,
            },
            Provider::User(names) => match &request.user {
                Some(user) => granted(names.contains(user)),
                None => Granted::WithUser,
            },
            Provider::Group(names) => match &request.user {
                Some(user) => granted(scope.is_in_group(user, names)),
                None => Granted::WithUser,
            },
        })
    }
}

weight_of!(AuthzConf: section);
weight_of!(Section: children);

impl Weight for Requirement {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            Requirement::Section(section) => section.heap(shared),
            Requirement::Provider { provider, .. } => provider.heap(shared),
        }
    }
}

impl Weight for Provider {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            Provider::Ip(networks) => networks.len() * size_of::<IpNet>(),
            Provider::Env(names) | Provider::User(names) | Provider::Group(names) => {
                names.heap(shared)
            }
            Provider::Expression(condition) => condition.heap(shared),
            _ => 0,
        }
    }
}
