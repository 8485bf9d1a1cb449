//! `access.format`: what a line of a pool's access log says, read as php-fpm reads it (`fpm_log.c`).

/// A line of the access log: texts and what is put in between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessFormat {
    tokens: Vec<Token>,
}

/// One part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// Text that stands for itself.
    Text(String),
    /// `%C`: processor time, in per cent of the time that the request took.
    Cpu(Cpu),
    /// `%d`: how long the request took.
    Duration(Unit),
    /// `%{NAME}e`: a FastCGI parameter, as the web server sent it.
    Variable(String),
    /// `%f`: the script.
    Script,
    /// `%l`: length of the request's body.
    ContentLength,
    /// `%m`: the request's method.
    Method,
    /// `%M`: the most memory that the script had, divided by so many bytes.
    Memory(u64),
    /// `%n`: name of the pool.
    Pool,
    /// `%{Name}o`: a header of the answer, its name written exactly so.
    Header(String),
    /// `%p`: process id of the worker.
    WorkerPid,
    /// `%P`: process id of the supervisor.
    SupervisorPid,
    /// `%q`: the query.
    Query,
    /// `%Q`: a question mark, if there is a query.
    QuestionMark,
    /// `%r`: the path of the request, as PHP has it.
    Uri,
    /// `%R`: address of the web server.
    Peer,
    /// `%s`: status of the answer.
    Status,
    /// `%t`: when the request came, in a form of `strftime(3)`.
    Begun(String),
    /// `%T`: when it had been answered.
    Ended(String),
    /// `%u`: the user, by the word of the client (Basic authentication).
    User,
}

/// Which processor time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cpu {
    /// The script's and the kernel's.
    Total,
    /// The script's own.
    User,
    /// What the kernel spent for it.
    System,
}

/// How a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds with three decimals.
    Seconds,
    /// Milliseconds with three decimals.
    Milliseconds,
    /// Whole microseconds.
    Microseconds,
}

/// The form of `%t` and `%T` where none is given.
const COMMON_TIME: &str = "%d/%b/%Y:%H:%M:%S %z";

impl AccessFormat {
    /// Reads a format.
    ///
    /// # Errors
    /// What php-fpm says of it.
    pub fn parse(format: &str) -> Result<AccessFormat, String> {
        let mut reader = Reader::default();
        let mut rest = format;
        while let Some(found) = rest.find('%') {
            reader.text.push_str(&rest[..found]);
            rest = reader.token(&rest[found + 1..])?;
        }
        reader.text.push_str(rest);
        reader.end_text();
        Ok(AccessFormat {
            tokens: reader.tokens,
        })
    }

    /// Its parts, in order.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Whether it says what only the worker of a request knows.
    pub fn needs_worker(&self) -> bool {
        let is_workers = |token: &Token| {
            matches!(
                token,
                Token::Cpu(_) | Token::Script | Token::Memory(_) | Token::WorkerPid | Token::Uri
            )
        };
        self.tokens.iter().any(is_workers)
    }

    /// Whether it says processor times.
    pub fn needs_cpu(&self) -> bool {
        let is_cpu = |token: &Token| matches!(token, Token::Cpu(_));
        self.tokens.iter().any(is_cpu)
    }
}

#[derive(Default)]
struct Reader {
    tokens: Vec<Token>,
    text: String,
}

impl Reader {
    /// Reads what comes after a `%`, and returns what comes after that.
    fn token<'a>(&mut self, rest: &'a str) -> Result<&'a str, String> {
        let mut rest = rest;
        let mut option = None;
        while let Some(inner) = rest.strip_prefix('{') {
            let (name, after) = inner
                .split_once('}')
                .filter(|(_, after)| !after.is_empty())
                .ok_or("missing closing embrace in the access.format")?;
            // As php-fpm, the last of several counts, and an empty one is none.
            option = Some(name).filter(|name| !name.is_empty());
            rest = after;
        }
        let mut letters = rest.chars();
        // A `%` at the end says nothing.
        let Some(letter) = letters.next() else {
            return Ok("");
        };
        let token = token_of(letter, option)?;
        match token {
            None => self.text.push('%'),
            Some(token) => {
                self.end_text();
                self.tokens.push(token);
            }
        }
        Ok(letters.as_str())
    }

    fn end_text(&mut self) {
        if !self.text.is_empty() {
            let text = std::mem::take(&mut self.text);
            self.tokens.push(Token::Text(text));
        }
    }
}

/// What a letter stands for; none is a `%`.
fn token_of(letter: char, option: Option<&str>) -> Result<Option<Token>, String> {
    let lower = option.map(str::to_ascii_lowercase);
    let lower = lower.as_deref();
    let time = || option.unwrap_or(COMMON_TIME).to_owned();
    let token = match letter {
        'C' => Token::Cpu(match lower {
            None | Some("total") => Cpu::Total,
            Some("user") => Cpu::User,
            Some("system") => Cpu::System,
            Some(_) => return Err(wrong(letter, option, "'total', 'user' or 'system'")),
        }),
        'd' => Token::Duration(match lower {
            None | Some("seconds") => Unit::Seconds,
            Some("milliseconds" | "milli" | "miliseconds" | "mili") => Unit::Milliseconds,
            Some("microseconds" | "micro") => Unit::Microseconds,
            Some(_) => {
                let allowed = "'seconds', 'milli', 'milliseconds', 'micro' or 'microseconds'";
                return Err(wrong(letter, option, allowed));
            }
        }),
        'e' => Token::Variable(named(letter, option, "environment variable")?),
        'M' => Token::Memory(match lower {
            None | Some("bytes") => 1,
            Some("kilobytes" | "kilo") => 1 << 10,
            Some("megabytes" | "mega") => 1 << 20,
            Some(_) => {
                let allowed = "'bytes', 'kilo', 'kilobytes', 'mega' or 'megabytes'";
                return Err(wrong(letter, option, allowed));
            }
        }),
        'o' => Token::Header(named(letter, option, "header")?),
        't' => Token::Begun(time()),
        'T' => Token::Ended(time()),
        _ => return plain_token_of(letter, option),
    };
    Ok(Some(token))
}

/// What a letter stands for that takes no option.
fn plain_token_of(letter: char, option: Option<&str>) -> Result<Option<Token>, String> {
    let token = match letter {
        '%' => None,
        'f' => Some(Token::Script),
        'l' => Some(Token::ContentLength),
        'm' => Some(Token::Method),
        'n' => Some(Token::Pool),
        'p' => Some(Token::WorkerPid),
        'P' => Some(Token::SupervisorPid),
        'q' => Some(Token::Query),
        'Q' => Some(Token::QuestionMark),
        'r' => Some(Token::Uri),
        'R' => Some(Token::Peer),
        's' => Some(Token::Status),
        'u' => Some(Token::User),
        _ => return Err(format!("Invalid token in the access.format (%{letter})")),
    };
    match option {
        Some(_) => Err(format!("embrace is not allowed for modifier %{letter}")),
        None => Ok(token),
    }
}

fn named(letter: char, option: Option<&str>, what: &str) -> Result<String, String> {
    option
        .map(str::to_owned)
        .ok_or_else(|| format!("the name of the {what} must be set between embraces for %{letter}"))
}

fn wrong(letter: char, option: Option<&str>, allowed: &str) -> String {
    let option = option.unwrap_or_default();
    format!("only {allowed} are allowed as a modifier for %{letter} ('{option}')")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(format: &str) -> Vec<Token> {
        AccessFormat::parse(format).unwrap().tokens
    }

    fn refused(format: &str) -> String {
        AccessFormat::parse(format).unwrap_err()
    }

    fn text(text: &str) -> Token {
        Token::Text(text.to_owned())
    }

    #[test]
    fn php_fpms_default_is_read() {
        let expected = [
            Token::Peer,
            text(" - "),
            Token::User,
            text(" "),
            Token::Begun(COMMON_TIME.to_owned()),
            text(" \""),
            Token::Method,
            text(" "),
            Token::Uri,
            text("\" "),
            Token::Status,
        ];
        assert_eq!(tokens("%R - %u %t \"%m %r\" %s"), expected);
    }

    #[test]
    fn options_are_read_no_matter_how_they_are_written() {
        assert_eq!(tokens("%{UseR}C"), [Token::Cpu(Cpu::User)]);
        assert_eq!(tokens("%{mili}d"), [Token::Duration(Unit::Milliseconds)]);
        assert_eq!(tokens("%{Kilo}M"), [Token::Memory(1024)]);
        assert_eq!(tokens("%{}d"), [Token::Duration(Unit::Seconds)]);
        assert_eq!(tokens("%{system}{user}C"), [Token::Cpu(Cpu::User)]);
        assert_eq!(
            tokens("%{REMOTE_ADDR}e"),
            [Token::Variable("REMOTE_ADDR".to_owned())]
        );
        assert_eq!(tokens("%{%H:%M}T"), [Token::Ended("%H:%M".to_owned())]);
    }

    #[test]
    fn a_per_cent_sign_is_written_twice_and_at_the_end_it_says_nothing() {
        assert_eq!(tokens("100%% of %n%"), [text("100% of "), Token::Pool]);
        assert_eq!(tokens(""), []);
    }

    #[test]
    fn what_php_fpm_refuses_is_refused_in_its_words() {
        let unclosed = "missing closing embrace in the access.format";
        assert_eq!(refused("%{micro"), unclosed);
        assert_eq!(refused("%{micro}"), unclosed);
        assert_eq!(refused("%k"), "Invalid token in the access.format (%k)");
        assert_eq!(refused("%é"), "Invalid token in the access.format (%é)");
        assert_eq!(refused("%{x}r"), "embrace is not allowed for modifier %r");
        assert_eq!(
            refused("%{x}C"),
            "only 'total', 'user' or 'system' are allowed as a modifier for %C ('x')"
        );
        assert_eq!(
            refused("%e"),
            "the name of the environment variable must be set between embraces for %e"
        );
        assert_eq!(
            refused("%{}o"),
            "the name of the header must be set between embraces for %o"
        );
    }

    #[test]
    fn the_worker_is_asked_only_for_what_it_alone_knows() {
        let needs = |format: &str| {
            let format = AccessFormat::parse(format).unwrap();
            (format.needs_worker(), format.needs_cpu())
        };
        assert_eq!(needs("%R %s %m %q %d"), (false, false));
        assert_eq!(needs("%R %r"), (true, false));
        assert_eq!(needs("%C"), (true, true));
    }
}
