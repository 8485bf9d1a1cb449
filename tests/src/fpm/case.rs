//! The cases of `tests/fpm-directives`: a configuration whose first comments are the requests to
//! php-fpm and to maitred. `tests/fpm-directives/README.md` describes them.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use super::{Daemon, Params, Place, Which, usual};
use crate::server::{give_to_web_user, is_root, set_mode};
use crate::wait;

/// How long what a request causes may take to appear in a log or a file.
const TRACE_DEADLINE: Duration = Duration::from_secs(30);

/// With this variable set, what php-fpm does in each step is written to stderr.
const SHOW: &str = "FPM_SHOW";

/// What `@USER@` stands for as root.
const WEB_USER_LINE: &str = "user = www-data";

/// One thing that is done with both, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A request; what is answered has to be the same.
    Request(Request),
    /// A text that both answers to the request before have to contain.
    Expect(String),
    /// A text that one daemon's answer has to contain, where the two differ for a reason.
    Apart(Which, String),
    /// A text, its numbers masked, that both have to write on stderr.
    Log(String),
    /// A file that both have to write, the same but for numbers.
    Compare(String),
    /// A file that both have to write, numbers included.
    CompareAll(String),
    /// A socket whose owner, mode and access control list have to be the same.
    Stat(String),
}

/// A request of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    method: String,
    target: String,
    /// Which listener, as [`Place::listener`] names it.
    via: String,
    params: Vec<(String, String)>,
    body: String,
    /// Whether numbers in the answer are masked.
    numbers: bool,
    /// Why the answers are not the same; they are not compared then.
    differs: Option<String>,
}

/// A configuration, and the requests to its server.
#[derive(Debug, Clone)]
pub struct Case {
    /// The file's name.
    pub name: String,
    as_root: bool,
    folders: Vec<String>,
    steps: Vec<Step>,
    configuration: String,
}

impl Case {
    /// Reads every case of a folder, in the order of their names.
    ///
    /// # Panics
    /// When one cannot be read or does not say what it asks.
    pub fn read_all(folder: &Path) -> Vec<Case> {
        let entries = fs::read_dir(folder).expect("the cases can be listed");
        let mut cases: Vec<Case> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
            .map(|path| Case::read(&path))
            .collect();
        cases.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(!cases.is_empty(), "{} has cases", folder.display());
        cases
    }

    fn read(path: &Path) -> Case {
        let name = path.file_stem().and_then(|name| name.to_str());
        let text = fs::read_to_string(path).expect("a case is text");
        let mut case = Case {
            name: name.expect("names of cases are text").to_owned(),
            as_root: false,
            folders: Vec::new(),
            steps: Vec::new(),
            configuration: text.clone(),
        };
        for line in text.lines().map_while(|line| line.strip_prefix(';')) {
            let line = line.trim_start();
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match (word, rest) {
                ("as", "root") => case.as_root = true,
                ("folder", name) => case.folders.push(name.to_owned()),
                ("request", words) => case.steps.push(Step::Request(request(words))),
                ("differs", reason) => case.differs(reason),
                ("expect", text) => case.steps.push(Step::Expect(text.to_owned())),
                ("theirs", text) => case.apart(Which::PhpFpm, text),
                ("ours", text) => case.apart(Which::Maitred, text),
                ("log", text) => case.steps.push(Step::Log(text.to_owned())),
                ("compare", file) => case.steps.push(Step::Compare(file.to_owned())),
                ("compare-all", file) => case.steps.push(Step::CompareAll(file.to_owned())),
                ("stat", socket) => case.steps.push(Step::Stat(socket.to_owned())),
                // Prose.
                _ => {}
            }
        }
        assert!(!case.steps.is_empty(), "{} asks for nothing", case.name);
        case
    }

    fn apart(&mut self, which: Which, text: &str) {
        self.steps.push(Step::Apart(which, text.to_owned()));
    }

    fn differs(&mut self, reason: &str) {
        match self.steps.last_mut() {
            Some(Step::Request(request)) => request.differs = Some(reason.to_owned()),
            _ => panic!("{}: `differs` has to follow a request", self.name),
        }
    }

    /// Why this case cannot be run here, if so.
    pub fn obstacle(&self) -> Option<&'static str> {
        (self.as_root && !is_root()).then_some("it asks for root")
    }
}

/// The words of a request: method, target, and settings in any order.
fn request(words: &str) -> Request {
    let mut words = words.split(' ').filter(|word| !word.is_empty());
    let mut next = || words.next().expect("a request has a method and a target");
    let mut request = Request {
        method: next().to_owned(),
        target: next().to_owned(),
        via: "www.sock".to_owned(),
        params: Vec::new(),
        body: String::new(),
        numbers: false,
        differs: None,
    };
    for word in words {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        match name {
            "via" => value.clone_into(&mut request.via),
            "body" => value.clone_into(&mut request.body),
            "numbers" => request.numbers = true,
            // A blank would end the word, and INI lines are apart by line ends.
            _ => request
                .params
                .push((name.to_owned(), value.replace("\\n", "\n").replace("\\_", " "))),
        }
    }
    request
}

/// Runs a case with both; what is not as it must be.
///
/// # Panics
/// When one of them does not start or stop.
pub fn compare(case: &Case, root: &Path) -> Vec<String> {
    let run_one = |which| move || run(case, root, which);
    let (theirs, ours) = thread::scope(|scope| {
        let theirs = scope.spawn(run_one(Which::PhpFpm));
        let ours = scope.spawn(run_one(Which::Maitred));
        (theirs.join(), ours.join())
    });
    let (theirs, ours) = match (theirs, ours) {
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        (Err(panic), _) | (_, Err(panic)) => {
            let why = panic.downcast_ref::<String>().map_or("", String::as_str);
            return vec![format!("{}: {why}", case.name)];
        }
    };
    if std::env::var_os(SHOW).is_some() {
        for (step, theirs) in case.steps.iter().zip(&theirs) {
            eprintln!("{}: {step:?}\n{theirs}\n", case.name);
        }
    }
    let mut wrong = Vec::new();
    for ((step, theirs), ours) in case.steps.iter().zip(&theirs).zip(&ours) {
        if let Some(what) = judge(step, theirs, ours) {
            wrong.push(format!("{}: {step:?}\n{what}", case.name));
        }
    }
    wrong
}

fn judge(step: &Step, theirs: &str, ours: &str) -> Option<String> {
    let both = || format!("--- php-fpm ---\n{theirs}\n--- maitred ---\n{ours}\n");
    let fine = match step {
        Step::Request(request) if request.differs.is_some() => true,
        Step::Expect(text) => theirs.contains(text) && ours.contains(text),
        Step::Apart(Which::PhpFpm, text) => theirs.contains(text),
        Step::Apart(Which::Maitred, text) => ours.contains(text),
        Step::Log(text) => theirs.contains(text) && ours.contains(text),
        Step::Request(_) | Step::Compare(_) | Step::CompareAll(_) | Step::Stat(_) => theirs == ours,
    };
    (!fine).then(both)
}

/// Runs a case with one of them: what came of each step.
fn run(case: &Case, root: &Path, which: Which) -> Vec<String> {
    let place = Place::default();
    for folder in &case.folders {
        let folder = place.file(folder);
        fs::create_dir_all(&folder).expect("a folder can be made");
        set_mode(&folder, 0o755);
        give_to_web_user(&folder);
    }
    let root = root.display().to_string();
    // A pool besides `www` names its user only where it can have another.
    let user = if is_root() { WEB_USER_LINE } else { "" };
    let configuration = usual(&case.configuration).replace("@ROOT@", &root).replace("@USER@", user);
    let daemon = Daemon::start_with(which, &configuration, place, &[]);
    let mut answer = String::new();
    let mut found = Vec::new();
    for step in &case.steps {
        found.push(match step {
            Step::Request(request) => {
                answer = ask(&daemon, request, &root);
                answer.clone()
            }
            Step::Expect(_) | Step::Apart(..) => answer.clone(),
            Step::Log(text) => logged(&daemon, text),
            Step::Compare(file) => without_numbers(&written(&daemon, file)),
            Step::CompareAll(file) => written(&daemon, file),
            Step::Stat(socket) => socket_state(&daemon, socket),
        });
    }
    daemon.stop();
    found
}

fn ask(daemon: &Daemon, request: &Request, root: &str) -> String {
    let place = daemon.place();
    let mut params = Params::get(root, &request.target).with("REQUEST_METHOD", &request.method);
    if !request.body.is_empty() {
        params.set("CONTENT_LENGTH", &request.body.len().to_string());
        params.set("CONTENT_TYPE", "application/x-www-form-urlencoded");
    }
    for (name, value) in &request.params {
        params.set(name, &place.fill_in(value).replace("@ROOT@", root));
    }
    let listener = place.listener(&request.via);
    let text = match listener.ask(&params, request.body.as_bytes()) {
        Ok(answer) => place.mask(&answer.to_string()),
        Err(error) => format!("no answer: {:?}", error.kind()),
    };
    if request.numbers { without_numbers(&text) } else { text }
}

/// What it has written on stderr once the text is in it.
fn logged(daemon: &Daemon, text: &str) -> String {
    let all = || without_numbers(&daemon.place().mask(&daemon.log().lines().join("\n")));
    let found = wait::poll(TRACE_DEADLINE, || Some(all()).filter(|all| all.contains(text)));
    found.unwrap_or_else(all)
}

/// A file's text once it has come to rest.
fn written(daemon: &Daemon, file: &str) -> String {
    let path = daemon.place().file(file);
    let read = || fs::read_to_string(&path).unwrap_or_default();
    let mut last = read();
    // What is written in several pieces is complete when nothing has been added between two looks.
    let settled = wait::poll(TRACE_DEADLINE, || {
        thread::sleep(Duration::from_millis(200));
        let now = read();
        let rests = !now.is_empty() && now == last;
        last.clone_from(&now);
        rests.then_some(now)
    });
    let text = settled.unwrap_or_else(|| format!("{file} is empty, or never at rest"));
    daemon.place().mask(&text)
}

fn socket_state(daemon: &Daemon, socket: &str) -> String {
    let path = daemon.place().file(socket);
    let mut text = match path.metadata() {
        Ok(data) => format!("{:o} {}:{}\n", data.mode(), data.uid(), data.gid()),
        Err(error) => format!("{error}\n"),
    };
    let acl = Command::new("getfacl").args(["-pnc"]).arg(&path).output();
    match acl {
        Ok(output) => text.push_str(&String::from_utf8_lossy(&output.stdout)),
        Err(error) => {
            let _ = write!(text, "getfacl: {error}");
        }
    }
    text
}

/// Each run of digits, and each address, as `#`.
fn without_numbers(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if !c.is_ascii_digit() {
            masked.push(c);
            continue;
        }
        let is_address = c == '0' && rest.next_if_eq(&'x').is_some();
        let belongs = |c: &char| c.is_ascii_digit() || (is_address && c.is_ascii_hexdigit());
        while rest.next_if(belongs).is_some() {}
        masked.push('#');
    }
    masked
}

#[cfg(test)]
mod tests {
    use super::without_numbers;

    #[test]
    fn numbers_and_addresses_are_masked() {
        let line = "[21-Nov-2026 23:52:33] child 12 at [0x00007f1c2a] 1.25";
        let masked = "[#-Nov-# #:#:#] child # at [#] #.#";
        assert_eq!(without_numbers(line), masked);
    }
}
