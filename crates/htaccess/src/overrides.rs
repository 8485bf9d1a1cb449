//! Which directives a file may have: `AllowOverride` and `AllowOverrideList`.

use crate::conf::core::Options;

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
            "require" | "satisfy" | "cgipassauth" => OverrideGroup::AuthConfig,
            _ if name.starts_with("auth") || name.starts_with("ssl") => OverrideGroup::AuthConfig,
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
    /// Those that it may not have are left out, instead of being mistakes (`Nonfatal=Override`).
    pub leaves_out_others: bool,
    /// So are those that do not exist (`Nonfatal=Unknown`).
    pub leaves_out_unknown: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Allowed {
    groups: Vec<OverrideGroup>,
    /// In small letters.
    directives: Vec<String>,
    /// The options of `Options`; none: all.
    options: Option<Options>,
}

impl Overrides {
    /// Those of groups and directives by their names; without any, and with `All`, all.
    pub fn of(names: &[String]) -> Overrides {
        let mut overrides = Overrides::default();
        let mut allowed = Allowed::default();
        let mut are_all = names.is_empty();
        for name in names {
            let (word, value) =
                name.split_once('=').map_or((&name[..], None), |(word, value)| (word, Some(value)));
            match (OverrideGroup::of_name(word), value) {
                (Some(OverrideGroup::Options), _) => {
                    allowed.groups.push(OverrideGroup::Options);
                    // `set_allow_opts`; without a value, what `Options All` has.
                    let own = Options::of_list(value.unwrap_or("All"));
                    allowed.options = Some(allowed.options.unwrap_or_default().and(own));
                }
                (Some(group), _) => allowed.groups.push(group),
                (None, Some(value)) if word.eq_ignore_ascii_case("nonfatal") => {
                    let is = |other: &str| value.eq_ignore_ascii_case(other);
                    overrides.leaves_out_others |= is("override") || is("all");
                    overrides.leaves_out_unknown |= is("unknown") || is("all");
                }
                (None, _) if word.eq_ignore_ascii_case("all") => are_all = true,
                (None, _) if word.eq_ignore_ascii_case("none") => {}
                (None, _) => allowed.directives.push(word.to_ascii_lowercase()),
            }
        }
        overrides.allowed = (!are_all).then_some(allowed);
        overrides
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

    /// The options that `Options` may change.
    pub fn options(&self) -> Options {
        let allowed = self.allowed.as_ref().and_then(|allowed| allowed.options);
        allowed.unwrap_or(Options::EVERY)
    }

    fn are_any(&self, name: &[u8], groups: impl Fn(&str) -> Vec<OverrideGroup>) -> bool {
        let Some(allowed) = &self.allowed else { return true };
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        let groups = groups(&name);
        let is_in_group = match &groups[..] {
            // Those of `OR_ALL`: with a list of directives alone, no file may have them.
            [] => !allowed.groups.is_empty(),
            groups => groups.iter().any(|group| allowed.groups.contains(group)),
        };
        is_in_group
            || allowed.directives.contains(&name)
            || allowed.directives.contains(&format!("<{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(names: &[&str]) -> Overrides {
        Overrides::of(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn without_names_and_with_all_every_directive_is_allowed() {
        for all in [overrides(&[]), overrides(&["all"]), overrides(&["Nonfatal=All", "All"])] {
            assert!(all.allow(b"Require") && all.allow_section(b"files"));
            assert_eq!(all.options(), Options::EVERY);
        }
        let none = overrides(&["None"]);
        assert!(!none.allow(b"Require") && !none.allow_section(b"files"));
    }

    #[test]
    fn a_list_of_options_allows_those_alone() {
        let some = overrides(&["Options=Indexes,MultiViews"]);
        assert!(some.allow(b"options") && some.allow(b"php_value") && !some.allow(b"Header"));
        assert_eq!(some.options(), Options::INDEXES.and(Options::MULTI_VIEWS));
        let both = overrides(&["Options=Indexes", "Options=ExecCGI"]);
        assert_eq!(both.options(), Options::INDEXES.and(Options::EXEC_CGI));
        // A directive of that name is allowed with all its options.
        assert_eq!(overrides(&["Options", "options"]).options(), Options::of_list("All"));
    }

    #[test]
    fn nonfatal_says_what_is_left_out() {
        let of = |value: &str| {
            let overrides = overrides(&["FileInfo", value]);
            assert!(!overrides.allow(b"Require"));
            [overrides.leaves_out_others, overrides.leaves_out_unknown]
        };
        assert_eq!(of("Limit"), [false, false]);
        assert_eq!(of("Nonfatal=Override"), [true, false]);
        assert_eq!(of("nonfatal=unknown"), [false, true]);
        assert_eq!(of("Nonfatal=All"), [true, true]);
    }
}
