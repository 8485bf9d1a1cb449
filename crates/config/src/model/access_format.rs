//! The format of a pool's access log: php-fpm's `access.format` (`fpm_log.c`).

/// Most characters between the braces of a modifier; more are cut off.
const MAX_MODIFIER_BYTES: usize = 128;

/// A checked `access.format`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessFormat(pub Vec<Token>);

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// Literal text.
    Text(String),
    /// `%C`: the share of a processor the request took, in percent.
    Cpu(Cpu),
    /// `%d`: how long the request took.
    Duration(Duration),
    /// `%{NAME}e`: a parameter from the web server.
    Parameter(String),
    /// `%f`: the script.
    Script,
    /// `%l`: the length of the request's body.
    ContentLength,
    /// `%m`: the method.
    Method,
    /// `%M`: peak memory of PHP.
    Memory(Memory),
    /// `%n`: the pool.
    Pool,
    /// `%{NAME}o`: a response header.
    Header(String),
    /// `%p`: the worker's process id.
    Pid,
    /// `%P`: the process id of the worker's parent.
    ParentPid,
    /// `%q`: the query.
    Query,
    /// `%Q`: `?` if there is a query.
    QuestionMark,
    /// `%r`: the path.
    Uri,
    /// `%R`: the address of the client of the FastCGI connection.
    RemoteAddress,
    /// `%s`: the status.
    Status,
    /// `%t`: the time of the request's arrival, with its strftime(3) format if it has one.
    Start(Option<String>),
    /// `%T`: the time when the line is written, with its strftime(3) format if it has one.
    End(Option<String>),
    /// `%u`: the user of Basic authentication.
    User,
}

/// The kind of processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpu {
    /// User and system time.
    Total,
    /// User time.
    User,
    /// System time.
    System,
}

/// The unit of a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duration {
    /// Seconds, with three decimals.
    Seconds,
    /// Thousandths of a second, with three decimals.
    Milliseconds,
    /// Millionths of a second.
    Microseconds,
}

/// The unit of an amount of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// Bytes.
    Bytes,
    /// 1024 bytes.
    Kilobytes,
    /// 1024 × 1024 bytes.
    Megabytes,
}

impl AccessFormat {
    /// Parses a format.
    ///
    /// # Errors
    /// The reason, in php-fpm's words.
    pub fn parse(format: &str) -> Result<AccessFormat, String> {
        let mut tokens = Vec::new();
        let mut text = String::new();
        let mut rest = format.chars();
        while let Some(c) = rest.next() {
            if c != '%' {
                text.push(c);
                continue;
            }
            // A lone `%` at the end is ignored.
            match next_token(&mut rest)? {
                None => {}
                Some(Token::Text(percent)) => text.push_str(&percent),
                Some(token) => {
                    if !text.is_empty() {
                        tokens.push(Token::Text(std::mem::take(&mut text)));
                    }
                    tokens.push(token);
                }
            }
        }
        if !text.is_empty() {
            tokens.push(Token::Text(text));
        }
        Ok(AccessFormat(tokens))
    }
}

/// The token after a `%`.
fn next_token(rest: &mut std::str::Chars<'_>) -> Result<Option<Token>, String> {
    let mut modifier = String::new();
    loop {
        let Some(letter) = rest.next() else {
            return Ok(None);
        };
        if letter != '{' {
            return token(letter, modifier).map(Some);
        }
        let missing = || "missing closing embrace in the access.format".to_owned();
        let (inside, after) = rest.as_str().split_once('}').ok_or_else(missing)?;
        if after.is_empty() {
            return Err(missing());
        }
        let mut end = inside.len().min(MAX_MODIFIER_BYTES);
        while !inside.is_char_boundary(end) {
            end -= 1;
        }
        modifier = inside[..end].to_owned();
        *rest = after.chars();
    }
}

fn token(letter: char, modifier: String) -> Result<Token, String> {
    let plain = |token: Token| {
        if modifier.is_empty() {
            Ok(token)
        } else {
            Err(format!("embrace is not allowed for modifier %{letter}"))
        }
    };
    let only = |allowed: &str| {
        format!("only {allowed} are allowed as a modifier for %{letter} ('{modifier}')")
    };
    let time = |modifier: &str| (!modifier.is_empty()).then(|| modifier.to_owned());
    match letter {
        '%' => plain(Token::Text("%".to_owned())),
        'C' => match modifier.to_ascii_lowercase().as_str() {
            "" | "total" => Ok(Token::Cpu(Cpu::Total)),
            "user" => Ok(Token::Cpu(Cpu::User)),
            "system" => Ok(Token::Cpu(Cpu::System)),
            _ => Err(only("'total', 'user' or 'system'")),
        },
        'd' => match modifier.to_ascii_lowercase().as_str() {
            "" | "seconds" => Ok(Token::Duration(Duration::Seconds)),
            // The spellings with one `l` are php-fpm's own, for compatibility.
            "milliseconds" | "milli" | "miliseconds" | "mili" => {
                Ok(Token::Duration(Duration::Milliseconds))
            }
            "microseconds" | "micro" => Ok(Token::Duration(Duration::Microseconds)),
            _ => Err(only("'seconds', 'milli', 'milliseconds', 'micro' or 'microseconds'")),
        },
        'e' if modifier.is_empty() => {
            Err("the name of the environment variable must be set between embraces for %e"
                .to_owned())
        }
        'e' => Ok(Token::Parameter(modifier)),
        'f' => plain(Token::Script),
        'l' => plain(Token::ContentLength),
        'm' => plain(Token::Method),
        'M' => match modifier.to_ascii_lowercase().as_str() {
            "" | "bytes" => Ok(Token::Memory(Memory::Bytes)),
            "kilobytes" | "kilo" => Ok(Token::Memory(Memory::Kilobytes)),
            "megabytes" | "mega" => Ok(Token::Memory(Memory::Megabytes)),
            _ => Err(only("'bytes', 'kilo', 'kilobytes', 'mega' or 'megabytes'")),
        },
        'n' => plain(Token::Pool),
        'o' if modifier.is_empty() => {
            Err("the name of the header must be set between embraces for %o".to_owned())
        }
        'o' => Ok(Token::Header(modifier)),
        'p' => plain(Token::Pid),
        'P' => plain(Token::ParentPid),
        'q' => plain(Token::Query),
        'Q' => plain(Token::QuestionMark),
        'r' => plain(Token::Uri),
        'R' => plain(Token::RemoteAddress),
        's' => plain(Token::Status),
        't' => Ok(Token::Start(time(&modifier))),
        'T' => Ok(Token::End(time(&modifier))),
        'u' => plain(Token::User),
        _ => Err(format!("Invalid token in the access.format (%{letter})")),
    }
}
