//! Which directives a file may have: `AllowOverride` and `AllowOverrideList`.

/// A group of directives, as `AllowOverride` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OverrideGroup {
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

impl OverrideGroup {
    fn of_name(name: &str) -> Option<OverrideGroup> {
        Some(match &name.to_ascii_lowercase()[..] {
            "authconfig" => OverrideGroup::AuthConfig,
            "fileinfo" => OverrideGroup::FileInfo,
            "indexes" => OverrideGroup::Indexes,
            "limit" => OverrideGroup::Limit,
            "options" => OverrideGroup::Options,
            _ => return None,
        })
    }

    /// The group of a directive; none: every file may have it.
    fn of_directive(name: &str) -> Option<OverrideGroup> {
        Some(match name {
            "order" | "allow" | "deny" => OverrideGroup::Limit,
            "options" | "ssloptions" | "contentdigest" | "filterdeclare" | "filterprovider"
            | "filterchain" | "php_value" | "php_flag" => OverrideGroup::Options,
            "require" | "satisfy" | "sslrequiressl" | "cgipassauth" => OverrideGroup::AuthConfig,
            _ if name.starts_with("auth") => OverrideGroup::AuthConfig,
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
            | "readmename" => OverrideGroup::Indexes,
            _ if name.starts_with("expires") || name.starts_with("index") => OverrideGroup::Indexes,
            "limitrequestbody" | "limitxmlrequestbody" | "serversignature" => return None,
            _ => OverrideGroup::FileInfo,
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
    groups: Vec<OverrideGroup>,
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
            match OverrideGroup::of_name(name) {
                Some(group) => allowed.groups.push(group),
                None => allowed.directives.push(name.to_ascii_lowercase()),
            }
        }
        Overrides { allowed: Some(allowed) }
    }

    /// Whether a file may have a directive.
    pub fn allow(&self, directive: &[u8]) -> bool {
        self.are_any(directive, |name| OverrideGroup::of_directive(name).into_iter().collect())
    }

    /// Whether a file may have a section, by its name in small letters.
    pub fn allow_section(&self, section: &[u8]) -> bool {
        self.are_any(section, |name| match name {
            "limit" | "limitexcept" => vec![OverrideGroup::Limit, OverrideGroup::AuthConfig],
            "requireall" | "requireany" | "requirenone" => vec![OverrideGroup::AuthConfig],
            _ => Vec::new(),
        })
    }

    fn are_any(&self, name: &[u8], groups: impl Fn(&str) -> Vec<OverrideGroup>) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let groups = groups(&name);
        groups.is_empty()
            || groups.iter().any(|group| allowed.groups.contains(group))
            || allowed.directives.contains(&name)
            || allowed.directives.contains(&format!("<{name}"))
    }
}
