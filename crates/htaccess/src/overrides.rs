//! Which directives a file may have: `AllowOverride` and `AllowOverrideList`.

/// A group of directives, as `AllowOverride` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Authentication and authorization.
    AuthConfig,
    /// Types, error pages, headers, rewriting, variables.
    FileInfo,
    /// Index files, listings, lifetimes.
    Indexes,
    /// Order, Allow and Deny.
    Limit,
    /// Options, and settings of PHP.
    Options,
}

impl Group {
    fn of_name(name: &str) -> Option<Group> {
        Some(match &name.to_ascii_lowercase()[..] {
            "authconfig" => Group::AuthConfig,
            "fileinfo" => Group::FileInfo,
            "indexes" => Group::Indexes,
            "limit" => Group::Limit,
            "options" => Group::Options,
            _ => return None,
        })
    }

    /// The group of a directive; none: every file may have it.
    fn of_directive(name: &str) -> Option<Group> {
        Some(match name {
            "order" | "allow" | "deny" => Group::Limit,
            "options" | "ssloptions" | "contentdigest" | "filterdeclare" | "filterprovider"
            | "filterchain" | "php_value" | "php_flag" => Group::Options,
            "require" | "satisfy" | "sslrequiressl" | "cgipassauth" => Group::AuthConfig,
            _ if name.starts_with("auth") => Group::AuthConfig,
            "directoryindex"
            | "directoryindexredirect"
            | "directoryslash"
            | "directorycheckhandler"
            | "fallbackresource"
            | "addicon"
            | "addiconbytype"
            | "addiconbyencoding"
            | "adddescription"
            | "defaulticon"
            | "headername"
            | "readmename" => Group::Indexes,
            _ if name.starts_with("expires") || name.starts_with("index") => Group::Indexes,
            "limitrequestbody" | "limitxmlrequestbody" | "serversignature" => return None,
            _ => Group::FileInfo,
        })
    }
}

/// The directives that a file may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// None: all.
    allowed: Option<Allowed>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Allowed {
    groups: Vec<Group>,
    /// In small letters.
    directives: Vec<String>,
}

impl Overrides {
    /// Those of groups and directives by their names; without any, and with `All`, all.
    pub fn of(names: &[String]) -> Overrides {
        if names.is_empty() || names.iter().any(|name| name.eq_ignore_ascii_case("all")) {
            return Overrides::default();
        }
        let mut allowed = Allowed::default();
        for name in names {
            match Group::of_name(name) {
                Some(group) => allowed.groups.push(group),
                None => allowed.directives.push(name.to_ascii_lowercase()),
            }
        }
        Overrides { allowed: Some(allowed) }
    }

    /// Whether a file may have a directive.
    pub fn allow(&self, directive: &[u8]) -> bool {
        self.are_any(directive, |name| Group::of_directive(name).into_iter().collect())
    }

    /// Whether a file may have a section, by its name in small letters.
    pub fn allow_section(&self, section: &[u8]) -> bool {
        self.are_any(section, |name| match name {
            "limit" | "limitexcept" => vec![Group::Limit, Group::AuthConfig],
            "requireall" | "requireany" | "requirenone" => vec![Group::AuthConfig],
            _ => Vec::new(),
        })
    }

    fn are_any(&self, name: &[u8], groups: impl Fn(&str) -> Vec<Group>) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let groups = groups(&name);
        groups.is_empty()
            || groups.iter().any(|group| allowed.groups.contains(group))
            || allowed.directives.contains(&name)
            || allowed.directives.contains(&format!("<{name}"))
    }
}
