//! Who may see what: `Require` with its containers, `Order`, `Allow` and `Deny`.

use maitred_rules::networks::parse_network;

use crate::source_directive::Directive;

/// The addresses of `Require local`.
const LOCAL: [&str; 2] = ["127.0.0.0/8", "::1"];

/// The addresses of the name `localhost`.
const LOOPBACK: [&str; 2] = ["127.0.0.1", "::1"];

/// Users that a rule lets in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AllowedUsers {
    /// All of the file.
    Valid,
    /// These.
    Named(Vec<String>),
}

/// A rule, as far as maitred can write it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct AccessRule {
    /// All clients are refused.
    pub is_closed: bool,
    /// Only clients of these networks, if there are any.
    pub only: Vec<String>,
    /// All but clients of these networks.
    pub not: Vec<String>,
    /// The users with a password.
    pub users: Option<AllowedUsers>,
    /// Why a part of it cannot be written; the paths are closed then.
    pub unwritten: Option<String>,
    /// A part of it is stricter than Apache's, for this reason.
    pub stricter: Option<&'static str>,
}

impl AccessRule {
    fn unwritten(why: String) -> AccessRule {
        AccessRule { is_closed: true, unwritten: Some(why), ..AccessRule::default() }
    }

    fn closed() -> AccessRule {
        AccessRule { is_closed: true, ..AccessRule::default() }
    }

    /// Whether all clients may see the paths.
    pub fn is_open(&self) -> bool {
        !self.is_closed && self.only.is_empty() && self.not.is_empty() && self.users.is_none()
    }
}

/// The name of a container of requirements.
fn container(directive: &Directive) -> Option<&'static str> {
    let names = ["<RequireAll", "<RequireAny", "<RequireNone"];
    names.into_iter().find(|name| directive.is(name))
}

/// Whether a directive is a requirement.
pub(super) fn is_requirement(directive: &Directive) -> bool {
    directive.is("Require") || container(directive).is_some()
}

/// Whether a section does nothing but to let all clients in.
pub(super) fn only_lets_in(section: &Directive) -> bool {
    let all: Vec<&Directive> = section.block.iter().collect();
    let rules = [of_require(&all), of_order(&all)];
    all.iter().all(|one| is_requirement(one) || is_compat(one))
        && rules.iter().flatten().all(AccessRule::is_open)
}

/// The rule of the requirements in a section; none without any.
pub(super) fn of_require(directives: &[&Directive]) -> Option<AccessRule> {
    let found: Vec<&Directive> =
        directives.iter().copied().filter(|one| is_requirement(one)).collect();
    (!found.is_empty()).then(|| any(&found))
}

fn one(directive: &Directive) -> AccessRule {
    let inner: Vec<&Directive> = directive.block.iter().collect();
    match container(directive) {
        Some("<RequireAll") => all(&inner),
        Some("<RequireAny") => any(&inner),
        Some(_) => none(&inner),
        None => requirement(&directive.arguments),
    }
}

fn requirement(arguments: &[String]) -> AccessRule {
    let mut words = arguments.iter().map(String::as_str);
    let first = words.next().unwrap_or_default().to_ascii_lowercase();
    let rest: Vec<&str> = words.collect();
    let shown = || format!("`Require {}` has no counterpart", arguments.join(" "));
    match first.as_str() {
        "all" if rest.first().is_some_and(|word| word.eq_ignore_ascii_case("granted")) => {
            AccessRule::default()
        }
        "all" => AccessRule::closed(),
        "local" => AccessRule {
            only: LOCAL.iter().map(|one| (*one).to_owned()).collect(),
            ..AccessRule::default()
        },
        "ip" => match rest.iter().map(|text| network(text)).collect::<Option<Vec<_>>>() {
            Some(only) if !only.is_empty() => AccessRule { only, ..AccessRule::default() },
            _ => AccessRule::unwritten(shown()),
        },
        "not" => inverted(requirement(&arguments[1..]), shown),
        "valid-user" => AccessRule { users: Some(AllowedUsers::Valid), ..AccessRule::default() },
        "user" if !rest.is_empty() => {
            let names = rest.iter().map(|name| (*name).to_owned()).collect();
            AccessRule { users: Some(AllowedUsers::Named(names)), ..AccessRule::default() }
        }
        _ => AccessRule::unwritten(shown()),
    }
}

/// `Require not`.
fn inverted(rule: AccessRule, shown: impl Fn() -> String) -> AccessRule {
    match rule {
        AccessRule { users: None, unwritten: None, only, not, .. }
            if !only.is_empty() && not.is_empty() =>
        {
            AccessRule { not: only, ..AccessRule::default() }
        }
        AccessRule { is_closed: true, unwritten: None, .. } => AccessRule::default(),
        rule if rule.is_open() => AccessRule::closed(),
        _ => AccessRule::unwritten(shown()),
    }
}

/// `<RequireAny>`, and requirements without a container.
fn any(directives: &[&Directive]) -> AccessRule {
    let rules = directives.iter().filter(|one| is_requirement(one)).map(|directive| one(directive));
    let rules: Vec<AccessRule> = rules.collect();
    if rules.iter().any(AccessRule::is_open) {
        return AccessRule::default();
    }
    let mut whole = AccessRule { is_closed: true, ..AccessRule::default() };
    for rule in rules {
        if let Some(why) = rule.unwritten {
            whole.unwritten = Some(why);
            continue;
        }
        if rule.is_closed {
            continue;
        }
        if whole.is_closed {
            whole = AccessRule { unwritten: whole.unwritten, ..rule };
            continue;
        }
        // Both lists together would let in the users of one from the addresses of the other.
        let has_both = |one: &AccessRule| !one.only.is_empty() && one.users.is_some();
        if has_both(&whole)
            && has_both(&rule)
            && whole.only != rule.only
            && whole.users != rule.users
        {
            let why = "each list of addresses has users of its own";
            return AccessRule::unwritten(why.to_owned());
        }
        let is_mixed = whole.users.is_some() != rule.users.is_some()
            || !rule.not.is_empty()
            || !whole.not.is_empty();
        if is_mixed {
            whole.stricter = Some("the address and the password are both needed here");
        }
        whole.only.extend(rule.only);
        whole.not.extend(rule.not);
        whole.users = match (whole.users, rule.users) {
            (Some(AllowedUsers::Named(mut names)), Some(AllowedUsers::Named(more))) => {
                names.extend(more);
                Some(AllowedUsers::Named(names))
            }
            (Some(_), Some(_)) => Some(AllowedUsers::Valid),
            (one, other) => one.or(other),
        };
    }
    whole
}

/// `<RequireAll>`.
fn all(directives: &[&Directive]) -> AccessRule {
    let mut whole = AccessRule::default();
    for directive in directives.iter().filter(|one| is_requirement(one)) {
        let rule = one(directive);
        if !whole.only.is_empty() && !rule.only.is_empty() {
            return AccessRule::unwritten("two lists of addresses must both match".to_owned());
        }
        // What can be written of a part is laxer without what another part asks for.
        if let Some(why) = rule.unwritten {
            return AccessRule::unwritten(why);
        }
        whole.is_closed |= rule.is_closed;
        whole.only.extend(rule.only);
        whole.not.extend(rule.not);
        whole.stricter = whole.stricter.or(rule.stricter);
        whole.users = match (whole.users, rule.users) {
            (None | Some(AllowedUsers::Valid), Some(more)) => Some(more),
            (own, None | Some(AllowedUsers::Valid)) => own,
            (Some(AllowedUsers::Named(names)), Some(AllowedUsers::Named(more))) => {
                let both = names.into_iter().filter(|name| more.contains(name)).collect();
                Some(AllowedUsers::Named(both))
            }
        };
    }
    whole
}

/// `<RequireNone>`.
fn none(directives: &[&Directive]) -> AccessRule {
    let mut whole = AccessRule::default();
    for directive in directives.iter().filter(|one| is_requirement(one)) {
        let shown = || format!("`{}` in `<RequireNone>` has no counterpart", directive.shown());
        let rule = inverted(one(directive), shown);
        if rule.unwritten.is_some() {
            return rule;
        }
        whole.is_closed |= rule.is_closed;
        whole.not.extend(rule.not);
    }
    whole
}

/// An address, a network, `10.1`, or a network with a mask, as maitred writes it.
fn network(text: &str) -> Option<String> {
    if parse_network(text).is_ok() {
        return Some(text.to_owned());
    }
    if let Some((address, mask)) = text.split_once('/') {
        let mask: std::net::Ipv4Addr = mask.parse().ok()?;
        let bits = u32::from(mask).leading_ones();
        let written = format!("{address}/{bits}");
        return parse_network(&written).is_ok().then_some(written);
    }
    let parts: Vec<&str> = text.trim_end_matches('.').split('.').collect();
    let is_part = |part: &&str| part.parse::<u8>().is_ok();
    if parts.len() > 3 || !parts.iter().all(is_part) {
        return None;
    }
    let bits = parts.len() * 8;
    let rest = ".0".repeat(4 - parts.len());
    Some(format!("{}{rest}/{bits}", parts.join(".")))
}

/// Whether a directive is one of mod_access_compat.
pub(super) fn is_compat(directive: &Directive) -> bool {
    ["Order", "Allow", "Deny"].iter().any(|name| directive.is(name))
}

/// The rule of `Order`, `Allow` and `Deny`; none without any.
pub(super) fn of_order(directives: &[&Directive]) -> Option<AccessRule> {
    let found: Vec<&&Directive> = directives.iter().filter(|one| is_compat(one)).collect();
    if found.is_empty() {
        return None;
    }
    let order = found.iter().rev().find(|one| one.is("Order"));
    let order = order.map(|one| one.arguments.concat().to_ascii_lowercase().replace(' ', ""));
    let allow_first = match order.as_deref() {
        None | Some("deny,allow") => false,
        Some("allow,deny" | "mutual-failure") => true,
        Some(other) => return Some(AccessRule::unwritten(format!("`Order {other}` is unknown"))),
    };
    let (mut allowed, mut denied) = (Sources::default(), Sources::default());
    for directive in found.iter().filter(|one| !one.is("Order")) {
        let list = if directive.is("Allow") { &mut allowed } else { &mut denied };
        for text in directive.arguments.iter().skip(1) {
            match (text.to_ascii_lowercase().as_str(), network(text)) {
                ("all", _) => list.all = true,
                // The name that a look-up of these addresses gives.
                ("localhost", _) => LOOPBACK.iter().for_each(|one| list.add((*one).to_owned())),
                (_, Some(network)) => list.add(network),
                _ => {
                    let why = format!("`{}` has no counterpart", directive.shown());
                    return Some(AccessRule::unwritten(why));
                }
            }
        }
    }
    Some(match allow_first {
        // Allowed clients, but for the denied ones.
        true if denied.all || !allowed.all && allowed.networks.is_empty() => AccessRule::closed(),
        true => AccessRule {
            only: if allowed.all { Vec::new() } else { allowed.networks },
            not: denied.networks,
            ..AccessRule::default()
        },
        false if allowed.all => AccessRule::default(),
        false if denied.all && allowed.networks.is_empty() => AccessRule::closed(),
        false if denied.all => AccessRule { only: allowed.networks, ..AccessRule::default() },
        false if allowed.networks.is_empty() => {
            AccessRule { not: denied.networks, ..AccessRule::default() }
        }
        false if denied.networks.is_empty() => AccessRule::default(),
        false => AccessRule {
            not: denied.networks,
            stricter: Some("clients that `Deny` names are denied, also if `Allow` names them"),
            ..AccessRule::default()
        },
    })
}

#[derive(Default)]
struct Sources {
    all: bool,
    networks: Vec<String>,
}

impl Sources {
    fn add(&mut self, network: String) {
        if !self.networks.contains(&network) {
            self.networks.push(network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::SourceLine;

    fn line(text: &str) -> Directive {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let place = SourceLine { file: "a".into(), line: 1, word: 0 };
        Directive { name: words[0].clone(), arguments: words[1..].to_vec(), place, block: vec![] }
    }

    fn rule(lines: &[&str]) -> AccessRule {
        let lines: Vec<Directive> = lines.iter().map(|text| line(text)).collect();
        let lines: Vec<&Directive> = lines.iter().collect();
        of_require(&lines).or(of_order(&lines)).expect("there are rules")
    }

    #[test]
    fn requirements_are_addresses_and_users() {
        assert!(rule(&["Require all granted"]).is_open());
        assert!(rule(&["Require all denied"]).is_closed);
        assert_eq!(rule(&["Require ip 10.1 192.0.2.1"]).only, ["10.1.0.0/16", "192.0.2.1"]);
        assert_eq!(rule(&["Require ip 10.0.0.0/255.0.0.0"]).only, ["10.0.0.0/8"]);
        let both = rule(&["Require valid-user", "Require ip 192.0.2.1"]);
        assert!(both.stricter.is_some() && both.users.is_some());
        assert!(rule(&["Require host example.com"]).unwritten.is_some());
        assert!(rule(&["Require expr true"]).is_closed);
    }

    #[test]
    fn a_container_with_all_and_not_is_a_list_of_exceptions() {
        let mut all = line("<RequireAll");
        all.block = vec![line("Require all granted"), line("Require not ip 192.0.2.1")];
        let found = of_require(&[&all]).expect("a rule");
        assert_eq!(
            found,
            AccessRule { not: vec!["192.0.2.1".to_owned()], ..AccessRule::default() }
        );
    }

    fn within(name: &str, lines: Vec<Directive>) -> Directive {
        Directive { block: lines, ..line(name) }
    }

    #[test]
    fn containers_in_one_another_are_never_laxer_than_in_apache() {
        let of = |address: &str, users: &str| {
            within("<RequireAll", vec![line(&format!("Require ip {address}")), line(users)])
        };
        let any = |parts: Vec<Directive>| of_require(&[&within("<RequireAny", parts)]);
        let (valid, bob) = ("Require valid-user", "Require user bob");
        let crossed = any(vec![of("192.0.2.1", valid), of("192.0.2.2", bob)]).expect("a rule");
        assert!(crossed.is_closed && crossed.unwritten.is_some(), "{crossed:?}");
        let same = any(vec![of("192.0.2.1", valid), of("192.0.2.2", valid)]).expect("a rule");
        assert_eq!(same.only, ["192.0.2.1", "192.0.2.2"]);
        let inner = vec![line("Require ip 10.0.0.0/8"), line("Require host example.org")];
        let all = within("<RequireAll", vec![within("<RequireAny", inner), line(valid)]);
        let all = of_require(&[&all]).expect("a rule");
        assert!(all.is_closed && all.unwritten.is_some(), "{all:?}");
    }

    #[test]
    fn orders_are_those_of_apache_2_2() {
        assert!(rule(&["Order allow,deny", "Allow from all"]).is_open());
        assert!(rule(&["Order allow,deny"]).is_closed);
        assert!(rule(&["Order deny,allow"]).is_open());
        let only = rule(&["Order deny,allow", "Deny from all", "Allow from 127.0.0.1"]);
        assert_eq!(only.only, ["127.0.0.1"]);
        let not = rule(&["Order allow,deny", "Allow from all", "Deny from 192.0.2.1"]);
        assert_eq!(not.not, ["192.0.2.1"]);
        assert!(rule(&["Allow from env=x"]).unwritten.is_some());
    }
}
