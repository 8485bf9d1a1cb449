use crate::ascii::list_members;
use crate::head::{Framing, Version};
use crate::refusal::Refusal;

/// The headers that decide about host, framing and connection.
#[derive(Debug, Default)]
pub(crate) struct FramingHeaders<'a> {
    pub(crate) host: Option<&'a [u8]>,
    length: Option<&'a [u8]>,
    coding: Option<&'a [u8]>,
    several_codings: bool,
    close: bool,
    stay: bool,
    continues: bool,
    /// Whether Connection lists Upgrade.
    pub(crate) upgrade: bool,
}

impl<'a> FramingHeaders<'a> {
    /// Collects them from all headers in one pass.
    pub(crate) fn survey(headers: &[httparse::Header<'a>]) -> Result<Self, Refusal> {
        let mut fields = Self::default();
        for header in headers {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            match header.name.len() {
                4 if is("host") => once(&mut fields.host, header.value, Refusal::SeveralHosts)?,
                6 if is("expect") => fields.take_expectation(header.value)?,
                10 if is("connection") => fields.take_connection(header.value),
                14 if is("content-length") => {
                    once(&mut fields.length, header.value, Refusal::SeveralLengths)?;
                }
                17 if is("transfer-encoding") => {
                    fields.several_codings |= fields.coding.replace(header.value).is_some();
                    fields.take_coding(header.value)?;
                }
                _ => {}
            }
        }
        Ok(fields)
    }

    fn take_expectation(&mut self, value: &[u8]) -> Result<(), Refusal> {
        self.continues = true;
        if value.eq_ignore_ascii_case(b"100-continue") { Ok(()) } else { Err(Refusal::Expectation) }
    }

    fn take_connection(&mut self, value: &[u8]) {
        for option in list_members(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.stay |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    fn take_coding(&self, value: &[u8]) -> Result<(), Refusal> {
        if list_members(value).all(|coding| coding.eq_ignore_ascii_case(b"chunked")) {
            Ok(())
        } else {
            Err(Refusal::CodingUnknown)
        }
    }

    /// The framing of the body (RFC 9112 §6.3, unambiguous cases only).
    pub(crate) fn framing(&self, version: Version) -> Result<Framing, Refusal> {
        match (self.length, self.coding) {
            (None, None) => Ok(Framing::None),
            (Some(length), None) => content_length(length).map(Framing::Length),
            (Some(_), Some(_)) => Err(Refusal::LengthAndCoding),
            (None, Some(_)) if version == Version::Http10 => Err(Refusal::CodingOnHttp10),
            (None, Some(coding)) => {
                if self.several_codings || !coding.eq_ignore_ascii_case(b"chunked") {
                    return Err(Refusal::CodingForm);
                }
                Ok(Framing::Chunked)
            }
        }
    }

    /// RFC 9112 §9.3: HTTP/1.1 persists without `close`, HTTP/1.0 only with `keep-alive`.
    pub(crate) fn keep_alive(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.stay)
    }

    pub(crate) fn expects_continue(&self, version: Version, body: Framing) -> bool {
        let bodiless = matches!(body, Framing::None | Framing::Length(0));
        self.continues && version == Version::Http11 && !bodiless
    }
}

/// Stores the value of a header that may occur once.
pub(crate) fn once<'a>(
    kept: &mut Option<&'a [u8]>,
    value: &'a [u8],
    refusal: Refusal,
) -> Result<(), Refusal> {
    if kept.replace(value).is_some() { Err(refusal) } else { Ok(()) }
}

/// RFC 9110 §8.6: one or more digits. Below 2^63, so that sums of lengths cannot overflow.
pub(crate) fn content_length(value: &[u8]) -> Result<u64, Refusal> {
    if value.contains(&b',') {
        return Err(Refusal::SeveralLengths);
    }
    if value.is_empty() {
        return Err(Refusal::LengthForm);
    }
    let mut length: u64 = 0;
    for digit in value {
        if !digit.is_ascii_digit() {
            return Err(Refusal::LengthForm);
        }
        length = length
            .checked_mul(10)
            .and_then(|length| length.checked_add(u64::from(digit - b'0')))
            .filter(|&length| length <= i64::MAX as u64)
            .ok_or(Refusal::LengthForm)?;
    }
    Ok(length)
}
