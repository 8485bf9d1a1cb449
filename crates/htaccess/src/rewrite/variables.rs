//! Server variables: `%{NAME}` (`lookup_variable`).

use crate::process::Scope;
use crate::request::LocalTime;

/// The request header that a variable stands for.
pub fn header_of_variable(name: &[u8]) -> Option<&'static str> {
    Some(match name {
        b"HTTP_USER_AGENT" => "User-Agent",
        b"HTTP_REFERER" => "Referer",
        b"HTTP_COOKIE" => "Cookie",
        b"HTTP_FORWARDED" => "Forwarded",
        b"HTTP_HOST" => "Host",
        b"HTTP_PROXY_CONNECTION" => "Proxy-Connection",
        b"HTTP_ACCEPT" => "Accept",
        _ => return None,
    })
}

impl Scope<'_> {
    /// A variable by its name in capital letters, other than one of a request header; empty if
    /// there is none.
    pub fn variable(&self, name: &[u8]) -> Vec<u8> {
        let (request, client) = (self.request, self.client);
        let time = || self.world.time();
        let two = |number: u8| format!("{number:02}").into_bytes();
        match name {
            b"REQUEST_URI" => request.uri.clone(),
            b"REQUEST_FILENAME" | b"SCRIPT_FILENAME" => request.filename.clone(),
            b"PATH_INFO" => request.path_info.clone(),
            b"QUERY_STRING" => request.args.clone().unwrap_or_default(),
            b"REQUEST_METHOD" => request.method.clone(),
            b"REQUEST_SCHEME" => client.scheme().as_bytes().to_vec(),
            b"DOCUMENT_ROOT" | b"CONTEXT_DOCUMENT_ROOT" => client.document_root.clone(),
            b"SERVER_NAME" => client.server_name.clone(),
            b"SERVER_PORT" => client.server_port.to_string().into_bytes(),
            b"SERVER_ADDR" => client.local().ip().to_canonical().to_string().into_bytes(),
            b"SERVER_PROTOCOL" if request.is_sub => b"INCLUDED".to_vec(),
            b"SERVER_PROTOCOL" => client.protocol.clone(),
            b"SERVER_SOFTWARE" => client.software.clone(),
            b"REMOTE_ADDR" | b"REMOTE_HOST" => {
                client.remote().ip().to_canonical().to_string().into_bytes()
            }
            b"REMOTE_PORT" => client.remote().port().to_string().into_bytes(),
            b"CONN_REMOTE_ADDR" => client.peer().ip().to_canonical().to_string().into_bytes(),
            b"REMOTE_USER" => request.user.clone().unwrap_or_default(),
            b"AUTH_TYPE" if request.user.is_some() => b"Basic".to_vec(),
            b"THE_REQUEST" => client.request_line.clone(),
            b"HTTPS" => if client.is_https { &b"on"[..] } else { b"off" }.to_vec(),
            b"IPV6" => {
                let is_v6 = client.remote().ip().to_canonical().is_ipv6();
                if is_v6 { &b"on"[..] } else { b"off" }.to_vec()
            }
            b"IS_SUBREQ" => if request.is_sub { &b"true"[..] } else { b"false" }.to_vec(),
            b"TIME_YEAR" => format!("{:04}", time().year).into_bytes(),
            b"TIME_MON" => two(time().month),
            b"TIME_DAY" => two(time().day),
            b"TIME_HOUR" => two(time().hour),
            b"TIME_MIN" => two(time().minute),
            b"TIME_SEC" => two(time().second),
            b"TIME_WDAY" => time().weekday.to_string().into_bytes(),
            b"TIME" => whole_time(time()),
            _ => Vec::new(),
        }
    }

    /// A variable of the request, or else of the server's environment.
    pub fn environment(&self, name: &[u8]) -> Vec<u8> {
        match self.request.env.get(name) {
            Some(value) => value.to_vec(),
            None => self.world.variable(name).unwrap_or_default(),
        }
    }
}

fn whole_time(time: LocalTime) -> Vec<u8> {
    let LocalTime { year, month, day, hour, minute, second, .. } = time;
    format!("{year:04}{month:02}{day:02}{hour:02}{minute:02}{second:02}").into_bytes()
}
