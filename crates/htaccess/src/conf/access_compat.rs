//! Order, Allow, Deny and Satisfy (mod_access_compat).

use std::net::{IpAddr, Ipv4Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::conf::authz::Methods;
use crate::request::{Client, Request};
use crate::text::integer;
use crate::weight::{Shared, Weight, weight_of, weightless};

/// The configuration of mod_access_compat, which a directory replaces as a whole.
#[derive(Debug, Clone, Default)]
pub struct AccessConf {
    orders: Vec<ForMethods<Order>>,
    satisfies: Vec<ForMethods<Satisfy>>,
    /// The sources of `Allow from`.
    pub allows: Vec<ForMethods<Source>>,
    /// The sources of `Deny from`.
    pub denies: Vec<ForMethods<Source>>,
    /// A line cannot be understood: no client has access.
    pub is_wrong: bool,
}

/// A setting for some methods.
#[derive(Debug, Clone)]
pub struct ForMethods<T> {
    methods: Methods,
    value: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    DenyAllow,
    AllowDeny,
    MutualFailure,
}

/// `Satisfy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Satisfy {
    /// Access and authentication.
    All,
    /// One of both.
    Any,
}

/// The source of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// `all`.
    All,
    /// `env=NAME` and `env=!NAME`.
    Variable {
        /// The variable.
        name: Vec<u8>,
        /// Whether it has to be set, or not.
        is_set: bool,
    },
    /// An address or a network.
    Network(IpNet),
    /// A host name, which is never looked up: it matches no client.
    Host,
}

impl AccessConf {
    /// `Order`.
    ///
    /// # Errors
    /// When there is no such order.
    pub fn order(&mut self, word: &[u8], methods: Methods) -> Result<(), String> {
        let value = match &word.to_ascii_lowercase()[..] {
            b"allow,deny" => Order::AllowDeny,
            b"deny,allow" => Order::DenyAllow,
            b"mutual-failure" => Order::MutualFailure,
            _ => return Err("unknown order".to_owned()),
        };
        self.orders.push(ForMethods { methods, value });
        Ok(())
    }

    /// `Satisfy`.
    ///
    /// # Errors
    /// When the word is another one.
    pub fn satisfy(&mut self, word: &[u8], methods: Methods) -> Result<(), String> {
        let value = match &word.to_ascii_lowercase()[..] {
            b"all" => Satisfy::All,
            b"any" => Satisfy::Any,
            _ => return Err("Satisfy either 'any' or 'all'.".to_owned()),
        };
        self.satisfies.push(ForMethods { methods, value });
        Ok(())
    }

    /// `Satisfy` for a method.
    pub fn satisfies(&self, method: &[u8]) -> Option<Satisfy> {
        last(&self.satisfies, method)
    }

    /// Whether the client has access.
    pub fn admits(&self, request: &Request, client: &Client) -> bool {
        let found = |sources: &[ForMethods<Source>]| {
            let mut sources =
                sources.iter().filter(|source| source.methods.contain(&request.method));
            sources.any(|source| source.value.matches(request, client))
        };
        match last(&self.orders, &request.method).unwrap_or(Order::DenyAllow) {
            Order::AllowDeny | Order::MutualFailure => found(&self.allows) && !found(&self.denies),
            Order::DenyAllow => found(&self.allows) || !found(&self.denies),
        }
    }
}

/// Why a host name may not deny: the client that it is for would have access.
pub const NO_LOOK_UP: &str = "the names of clients are not looked up, so that it would not deny: \
     write their addresses";

/// Whether a word may be the end of a host name that DNS has. `none` and `*` are common for no
/// client, and so are ranges of addresses (`10.0.0.1-10.0.0.9`): no domain of the first level is a
/// number.
pub fn may_be_host(word: &[u8]) -> bool {
    let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let mut labels = word.rsplit(|byte| *byte == b'.').filter(|label| !label.is_empty());
    let has_letter = |label: &[u8]| label.iter().any(u8::is_ascii_alphabetic);
    word.iter().all(is_of_name)
        && labels.next().is_some_and(has_letter)
        && !word.eq_ignore_ascii_case(b"none")
}

impl<T> ForMethods<T> {
    /// A value for these methods.
    pub fn new(methods: Methods, value: T) -> ForMethods<T> {
        ForMethods { methods, value }
    }
}

fn last<T: Copy>(list: &[ForMethods<T>], method: &[u8]) -> Option<T> {
    let found = list.iter().rev().find(|item| item.methods.contain(method));
    found.map(|item| item.value)
}

impl Source {
    /// Parses a source.
    ///
    /// # Errors
    /// When it is neither an address nor a name.
    pub fn parse(word: &[u8]) -> Result<Source, String> {
        let lower = word.to_ascii_lowercase();
        if lower.starts_with(b"env=") {
            let is_set = !lower.starts_with(b"env=!");
            let name = word[if is_set { 4 } else { 5 }..].to_vec();
            return Ok(Source::Variable { name, is_set });
        }
        if lower == b"all" {
            return Ok(Source::All);
        }
        match parse_network(word) {
            Some(network) => Ok(Source::Network(network)),
            // Digits and dots that are no address (`looks_like_ip`).
            None if word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.') => {
                Err("The specified IP address is invalid.".to_owned())
            }
            None if word.contains(&b'/') => Err("An IP address was expected".to_owned()),
            None if word.contains(&b'#') => Err("No comments are allowed here".to_owned()),
            None => Ok(Source::Host),
        }
    }

    fn matches(&self, request: &Request, client: &Client) -> bool {
        match self {
            Source::All => true,
            Source::Variable { name, is_set } => request.env.get(name).is_some() == *is_set,
            Source::Network(network) => network.contains(&client.remote().ip().to_canonical()),
            Source::Host => false,
        }
    }
}

/// An address, a network (`10.0.0.0/8`, `10.0.0.0/255.0.0.0`) or the start of one (`10.1.`).
pub fn parse_network(text: &[u8]) -> Option<IpNet> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(IpNet::from(address.to_canonical()));
    }
    let Some((address, mask)) = text.split_once('/') else {
        return partial_network(text);
    };
    if let Ok(mask) = mask.parse::<Ipv4Addr>() {
        let address = address.parse::<Ipv4Addr>().ok()?;
        return Ipv4Net::with_netmask(address, mask).ok().map(|net| IpNet::V4(net.trunc()));
    }
    let prefix = u8::try_from(integer(mask.as_bytes())).ok()?;
    match address.parse::<IpAddr>() {
        Ok(address) => IpNet::new(address, prefix).ok().map(|net| net.trunc()),
        Err(_) => {
            let IpNet::V4(start) = partial_network(address)? else { return None };
            Ipv4Net::new(start.addr(), prefix).ok().map(|net| IpNet::V4(net.trunc()))
        }
    }
}

/// One to three octets.
fn partial_network(text: &str) -> Option<IpNet> {
    let text = text.strip_suffix('.').unwrap_or(text);
    let octets: Vec<u8> = text.split('.').map(|octet| octet.parse().ok()).collect::<Option<_>>()?;
    if octets.is_empty() || octets.len() > 3 {
        return None;
    }
    let mut address = [0; 4];
    address[..octets.len()].copy_from_slice(&octets);
    let prefix = u8::try_from(octets.len() * 8).ok()?;
    Ipv4Net::new(address.into(), prefix).ok().map(IpNet::V4)
}

weight_of!(AccessConf: orders, satisfies, allows, denies);

impl<T: Weight> Weight for ForMethods<T> {
    fn heap(&self, shared: Shared) -> usize {
        self.value.heap(shared)
    }
}

weightless!(Order, Satisfy);

impl Weight for Source {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            Source::Variable { name, .. } => name.heap(shared),
            Source::All | Source::Network(_) | Source::Host => 0,
        }
    }
}
