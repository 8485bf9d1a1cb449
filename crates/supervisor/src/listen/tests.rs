use super::*;
use crate::system::faults::Findings;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// A configuration that listens on `listen` and has a pool with each of `listeners`.
fn config(listen: &[SocketAddr], listeners: Vec<FastcgiListener>) -> Config {
    let pools = listeners.into_iter().zip(0..).map(|(listener, number)| Pool {
        listener: Some(listener),
        ..Pool::named(&format!("pool{number}"))
    });
    Config { listen: listen.to_vec(), pools: pools.collect(), ..Config::default() }
}

fn opened(config: &Config) -> Result<Vec<Listener>, Error> {
    let mut opened = open(config, InheritedSockets::default(), 2)?;
    opened.lost.pop().map_or(Ok(opened.new), Err)
}

fn unix_listener(path: &Path) -> FastcgiListener {
    FastcgiListener::at(Address::Unix(path.to_owned()))
}

fn socket(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("php.sock")
}

fn refusal(listeners: Vec<FastcgiListener>) -> String {
    opened(&config(&[], listeners)).unwrap_err().to_string()
}

/// What a reload opens beside the listeners in use.
fn others(config: &Config, in_use: &[Listener]) -> OpenedListeners {
    open_others(config, KnownListeners { in_use, unaccepted: &[] }, 2).unwrap()
}

#[test]
fn whoever_holds_the_port_is_named_in_the_error() {
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::empty()).unwrap();
    let mut holder = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let error = opened(&config(&[address], Vec::new())).unwrap_err();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let sentence = error.to_string();
    assert!(sentence.starts_with(&address.to_string()), "{sentence}");
    assert!(sentence.contains(&format!("sleep (process {})", holder.id())), "{sentence}");
}

#[test]
fn a_port_left_to_the_system_is_the_same_for_all_threads() {
    let config = config(&["127.0.0.1:0".parse().unwrap()], Vec::new());
    let listeners = opened(&config).unwrap();
    for socket in &listeners[0].sockets {
        let address = sockets::local_address(socket).unwrap();
        assert_ne!(address.port(), 0);
        assert_eq!(Address::Tcp(address), listeners[0].address);
    }
}

#[test]
fn a_unix_listener_has_its_mode_and_goes_with_its_listener() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket(&folder);
    let listener = FastcgiListener { mode: 0o606, ..unix_listener(&path) };
    let listeners = opened(&config(&[], vec![listener])).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o606);
    UnixStream::connect(&path).unwrap();
    drop(listeners);
    assert!(!path.exists());
}

#[test]
fn a_socket_that_somebody_listens_on_is_left_alone_and_a_dead_one_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket(&folder);
    let living = UnixListener::bind(&path).unwrap();
    let said = refusal(vec![unix_listener(&path)]);
    assert!(said.contains("another process listens there already"), "{said}");
    let process = format!("(process {})", std::process::id());
    assert!(said.contains(&process), "{said}");
    drop(living);
    assert!(opened(&config(&[], vec![unix_listener(&path)])).is_ok());
}

#[test]
fn the_file_of_another_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket(&folder);
    let listeners = opened(&config(&[], vec![unix_listener(&path)])).unwrap();
    std::fs::rename(&path, folder.path().join("moved")).unwrap();
    let _other = UnixListener::bind(&path).unwrap();
    drop(listeners);
    assert!(path.exists());
}

#[test]
fn why_a_unix_socket_cannot_be_made_is_said_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing/php.sock");
    let said = refusal(vec![unix_listener(&missing)]);
    assert!(said.contains("missing does not exist; make it"), "{said}");
    let long = folder.path().join("x".repeat(120));
    let said = refusal(vec![unix_listener(&long)]);
    assert!(said.ends_with("choose a shorter path"), "{said}");
    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let said = refusal(vec![unix_listener(&file)]);
    assert!(said.contains("a file that is no socket"), "{said}");
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
    let unknown = FastcgiListener {
        owner: Some("no-such-user".to_owned()),
        ..unix_listener(&socket(&folder))
    };
    let said = refusal(vec![unknown]);
    assert!(said.contains("no user `no-such-user`"), "{said}");
}

#[test]
fn a_socket_that_failed_half_way_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, taken) = (socket(&folder), folder.path().join("taken"));
    let _living = UnixListener::bind(&taken).unwrap();
    refusal(vec![unix_listener(&path), unix_listener(&taken)]);
    assert!(!path.exists());
}

#[test]
fn php_fpm_s_words_are_said_where_we_were_started_as_it() {
    let folder = tempfile::tempdir().unwrap();
    let held = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = held.local_addr().unwrap();
    let living = socket(&folder);
    let _living = UnixListener::bind(&living).unwrap();
    let said = |listener: FastcgiListener| {
        let named = NamedListener { listener: &listener, pool: "www", fpm: true };
        let asked = NewListener {
            one: Listening::Fastcgi(&listener),
            listener: Some(named),
            rights: named.rights().unwrap(),
            threads: 1,
            tcp: &[],
        };
        let error = asked.open(&mut InheritedSockets::default()).unwrap_err();
        (error.to_string(), error.remedy().map(str::to_owned))
    };
    let (text, remedy) = said(FastcgiListener::at(Address::Tcp(address)));
    assert_eq!(
        text,
        format!(
            "unable to bind listening socket for address '{address}': Address already in use (98)"
        )
    );
    assert!(remedy.unwrap().contains("stop it, or choose another"));
    let (text, _) = said(unix_listener(&living));
    let expected = "Another FPM instance seems to already listen on";
    assert_eq!(text, format!("{expected} {}", living.display()));
}

#[test]
fn a_port_alone_falls_back_to_ipv4() {
    const PORTS_TRIED: usize = 20;
    // A socket that listens on all IPv6 addresses only leaves IPv4 free, unless another program has
    // that port.
    let mut tries = (0..PORTS_TRIED).map(|_| {
        let six = sockets::listen_tcp("[::]:0".parse().unwrap(), true, 1, 1).unwrap();
        let port = sockets::local_address(&six[0]).unwrap().port();
        let listener = FastcgiListener {
            asked: port.to_string(),
            ..FastcgiListener::at(Address::Tcp(SocketAddr::from(([0; 8], port))))
        };
        let asked = listener.listen.clone();
        opened(&config(&[], vec![listener])).map(|listeners| (port, asked, listeners))
    });
    let (port, asked, listeners) = tries.find_map(Result::ok).unwrap();
    let listener = listeners.iter().find(|one| one.asked == asked).unwrap();
    assert_eq!(listener.address.to_string(), format!("0.0.0.0:{port}"));
}

#[test]
fn what_changes_of_a_listener_holds_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket(&folder);
    let mut before = config(&[], vec![unix_listener(&path)]);
    before.listen.clear();
    let mut listeners = opened(&before).unwrap();
    let mut after = before.clone();
    after.pools[0].listener = Some(FastcgiListener {
        mode: 0o600,
        acl_users: vec!["daemon".to_owned()],
        ..unix_listener(&path)
    });
    let change = others(&after, &listeners);
    assert!(change.new.is_empty());
    change.adjust(&mut listeners);
    // With a list, the bits of the group show the mask (acl(5)).
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
    let change = others(&before, &listeners);
    change.adjust(&mut listeners);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o660);
    let file = unix_file(&path);
    assert!(!file.contains("daemon"), "{file}");
}

fn unix_file(path: &Path) -> String {
    let facl = std::process::Command::new("getfacl")
        .args(["-cp".as_ref(), path.as_os_str()])
        .output()
        .expect("the tests need getfacl (Debian's package acl)");
    String::from_utf8_lossy(&facl.stdout).into_owned()
}

#[test]
fn a_socket_whose_file_has_gone_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket(&folder);
    let mut config = config(&[], vec![unix_listener(&path)]);
    config.listen.clear();
    let listeners = opened(&config).unwrap();
    std::fs::remove_file(&path).unwrap();
    let change = others(&config, &listeners);
    assert_eq!(change.new.len(), 1);
    assert!(change.replaces(&listeners[0]));
    drop(listeners);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_socket_that_its_owner_has_linked_stays_and_gets_other_rights() {
    let folder = tempfile::tempdir().unwrap();
    let path = socket(&folder);
    let with_mode = |mode| {
        let listener = FastcgiListener { mode, ..unix_listener(&path) };
        config(&[], vec![listener])
    };
    let mut listeners = opened(&with_mode(0o666)).unwrap();
    std::fs::hard_link(&path, folder.path().join("link")).unwrap();
    let change = others(&with_mode(0o600), &listeners);
    assert_eq!((change.new.len(), change.lost.len(), change.stays.len()), (0, 0, 1));
    change.adjust(&mut listeners);
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    drop(listeners);
    assert!(!path.exists());
}

#[test]
fn an_address_that_gets_other_clients_keeps_its_sockets() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let before = config(&[address], Vec::new());
    let listeners = opened(&before).unwrap();
    let after = config(&[], vec![FastcgiListener::at(Address::Tcp(address))]);
    let change = others(&after, &listeners);
    assert_eq!(change.new.len(), 1);
    assert!(matches!(change.new[0].clients, Clients::Fastcgi { .. }));
}

#[test]
fn keys_are_those_of_php_fpm() {
    let tcp = |text: &str| key(&Address::Tcp(text.parse().unwrap()));
    assert_eq!(tcp("127.0.0.1:9000"), "127.0.0.1:9000");
    assert_eq!(tcp("[::]:9000"), ":::9000");
    assert_eq!(tcp("[::1]:9000"), "::1:9000");
    let path = PathBuf::from("/run/php/x.sock");
    assert_eq!(key(&Address::Unix(path)), "/run/php/x.sock");
}

#[test]
fn a_unix_socket_that_cannot_be_made_is_a_fault_of_its_pool_as_long_as_that_is_so() {
    let folder = tempfile::tempdir().unwrap();
    let (gone, taken) = (folder.path().join("gone/a.sock"), folder.path().join("b.sock"));
    std::fs::write(&taken, "").unwrap();
    let good = socket(&folder);
    let listeners = [&gone, &taken, &good].map(|path| unix_listener(path));
    let config = config(&[], listeners.into());
    let opened = open(&config, InheritedSockets::default(), 2).unwrap();
    assert_eq!(opened.new.len(), 1);
    let said = |errors: &[Error]| errors.iter().map(ToString::to_string).collect::<Vec<_>>();
    let lost = said(&opened.lost);
    assert!(lost[0].contains("gone does not exist"), "{lost:?}");
    assert!(lost[1].contains("a file that is no socket lies there"), "{lost:?}");
    let faults = Findings::among(opened.lost, &config, None).faults;
    assert_eq!(said(&still_lost(&config, &faults)), lost);
    std::fs::create_dir(gone.parent().unwrap()).unwrap();
    assert_eq!(said(&still_lost(&config, &faults)), lost[1..]);
    std::fs::remove_file(&taken).unwrap();
    assert!(still_lost(&config, &faults).is_empty());
}
