//! mod_rewrite in the context of a directory.

mod apply_rules;
mod braces;
mod expand;
mod rule_parser;
mod variables;

pub use apply_rules::{Rewritten, apply};
pub use rule_parser::{parse_condition, parse_rule, refuses};
pub use variables::header_of_variable;

use std::sync::Arc;

use crate::expr;
use crate::regex::Regex;
use crate::weight::{Shared, Weight, weight_of};

/// Rounds of the flag N without a number of its own.
const MAX_ROUNDS: i64 = 10_000;

/// The rewriting configuration of a directory.
#[derive(Debug, Clone, Default)]
pub struct RewriteConf {
    /// `RewriteEngine`; none: not set.
    pub is_on: Option<bool>,
    /// `RewriteOptions`; none: not set.
    pub options: Option<RewriteOptions>,
    /// `RewriteBase`.
    pub base: Option<Vec<u8>>,
    /// The directory that has the rules, with its slash.
    pub directory: Vec<u8>,
    /// The rules.
    pub rules: Vec<Arc<Rule>>,
    /// Conditions whose rule has not come yet.
    pub conditions: Vec<RuleCondition>,
}

/// `RewriteOptions`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RewriteOptions {
    /// `Inherit`.
    pub inherits: bool,
    /// `InheritBefore`.
    pub inherits_before: bool,
    /// `InheritDown`.
    pub passes_down: bool,
    /// `InheritDownBefore`.
    pub passes_down_before: bool,
    /// `IgnoreInherit`.
    pub ignores_inherited: bool,
    /// `AllowNoSlash`.
    pub allows_no_slash: bool,
    /// `MergeBase`.
    pub merges_base: bool,
}

impl RewriteConf {
    /// The configuration below another one (`config_perdir_merge`).
    pub fn below(&self, base: &RewriteConf) -> RewriteConf {
        let options = self.options.or(base.options);
        let own = options.unwrap_or_default();
        let parent = base.options.unwrap_or_default();
        let passed = |passes: bool| passes && !own.ignores_inherited;
        let rules = if own.inherits || passed(parent.passes_down) {
            [&self.rules[..], &base.rules].concat()
        } else if own.inherits_before || passed(parent.passes_down_before) {
            [&base.rules[..], &self.rules].concat()
        } else {
            self.rules.clone()
        };
        let inherited = base.base.as_ref().filter(|_| own.merges_base);
        RewriteConf {
            is_on: self.is_on.or(base.is_on),
            options,
            base: self.base.as_ref().or(inherited).cloned(),
            directory: self.directory.clone(),
            rules,
            conditions: Vec::new(),
        }
    }
}

/// A rule with its conditions.
#[derive(Debug, Clone)]
pub struct Rule {
    pattern: Regex,
    is_negated: bool,
    /// The substitution; none: `-`, or a flag that allows none.
    substitution: Option<Vec<u8>>,
    conditions: Vec<RuleCondition>,
    flags: Flags,
    /// Its line.
    pub line: usize,
}

impl Rule {
    /// Whether it has the flag P.
    pub fn is_proxy(&self) -> bool {
        self.flags.is_proxy
    }
}

/// The flags of a rule.
#[derive(Debug, Clone, Default)]
struct Flags {
    /// B: groups are escaped, all characters or these.
    escapes_groups: bool,
    escaped: Option<Vec<u8>>,
    not_escaped: Option<Vec<u8>>,
    escapes_without_plus: bool,
    escapes_controls: bool,
    is_chained: bool,
    cookies: Vec<Vec<u8>>,
    discards_path_info: bool,
    variables: Vec<Vec<u8>>,
    is_end: bool,
    /// F, G, or R with a status that is no redirect.
    status: Option<u16>,
    handler: Option<Vec<u8>>,
    media_type: Option<Vec<u8>>,
    is_last: bool,
    /// N, with its number of rounds.
    next_rounds: Option<i64>,
    skips_subrequests: bool,
    does_not_escape: bool,
    is_proxy: bool,
    appends_query: bool,
    discards_query: bool,
    splits_at_last: bool,
    has_no_query: bool,
    /// R, with its status.
    redirects: Option<u16>,
    skip: usize,
    allows_3f: bool,
    keeps_slashes: bool,
    ignores_case: bool,
}

/// A RewriteCond.
#[derive(Debug, Clone)]
pub struct RuleCondition {
    input: Vec<u8>,
    test: CondTest,
    is_negated: bool,
    is_or: bool,
    does_not_vary: bool,
}

/// The test of a RewriteCond.
#[derive(Debug, Clone)]
enum CondTest {
    Matches(Regex),
    Expression(Arc<expr::Condition>),
    /// -f, -d, -s, -x, -l, -F and -U.
    File(u8),
    Text {
        order: TextOrder,
        pattern: Vec<u8>,
        ignores_case: bool,
    },
    Number {
        order: TextOrder,
        pattern: Vec<u8>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextOrder {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

weight_of!(RewriteConf: base, directory, rules, conditions);
weight_of!(Rule: pattern, substitution, conditions, flags);
weight_of!(Flags: escaped, not_escaped, cookies, variables, handler, media_type);
weight_of!(RuleCondition: input, test);

impl Weight for CondTest {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            CondTest::Matches(regex) => regex.heap(shared),
            CondTest::Expression(condition) => condition.heap(shared),
            CondTest::File(_) => 0,
            CondTest::Text { pattern, .. } | CondTest::Number { pattern, .. } => {
                pattern.heap(shared)
            }
        }
    }
}
