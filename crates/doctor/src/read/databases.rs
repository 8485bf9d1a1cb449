//! Databases on this machine, and their `max_connections`.

use super::processes::{self, Proc};
use super::world::World;
use crate::facts::{Database, Fact, Service, known};

/// MariaDB's and MySQL's default of `max_connections`.
const MYSQL_DEFAULT: u64 = 151;

/// PostgreSQL's default.
const POSTGRES_DEFAULT: u64 = 100;

/// The distributions' settings of MariaDB and MySQL, in order of precedence, the last first.
const MYSQL_FILES: [&str; 6] = [
    "/etc/my.cnf",
    "/etc/my.cnf.d/*.cnf",
    "/etc/mysql/my.cnf",
    "/etc/mysql/conf.d/*.cnf",
    "/etc/mysql/mysql.conf.d/*.cnf",
    "/etc/mysql/mariadb.conf.d/*.cnf",
];

/// And PostgreSQL's.
const POSTGRES_FILES: [&str; 2] =
    ["/etc/postgresql/*/main/postgresql.conf", "/var/lib/pgsql/data/postgresql.conf"];

/// The users of pools other than the one who asks: their processes can have any name.
pub(super) fn tenants(services: &[Service], asking: u32) -> Vec<u32> {
    let pools = services.iter().flat_map(|service| &service.pools);
    pools.filter_map(|pool| pool.user).filter(|user| *user != asking).collect()
}

/// All running databases that are no tenant's.
pub(super) fn databases(
    world: &World,
    all: &Fact<Vec<Proc>>,
    tenants: &[u32],
) -> Fact<Vec<Database>> {
    let all = known(all)?;
    let mut found: Vec<Database> = Vec::new();
    let is_tenants = |process: &Proc| process.user.is_none_or(|user| tenants.contains(&user));
    for process in all.iter().filter(|process| !is_tenants(process)) {
        let (name, default, files): (_, _, &[&str]) = match process.name.as_str() {
            "mariadbd" => ("MariaDB", MYSQL_DEFAULT, &MYSQL_FILES),
            "mysqld" => ("MySQL", MYSQL_DEFAULT, &MYSQL_FILES),
            "postgres" | "postmaster" => ("PostgreSQL", POSTGRES_DEFAULT, &POSTGRES_FILES),
            _ => continue,
        };
        // PostgreSQL has a process for each connection.
        if all.iter().any(|other| other.pid == process.parent && other.name == process.name) {
            continue;
        }
        let set =
            on_command_line(&process.title).map(|number| (number, "its command line".to_owned()));
        let set = set.or_else(|| in_files(world, files));
        let (max_connections, place) = set.unwrap_or((default, "its default".to_owned()));
        found.push(Database {
            name: format!("{name} (process {})", process.pid),
            max_connections,
            place,
            oom_score_adj: processes::oom_score_adj(world, process.pid),
        });
    }
    Ok(found)
}

fn on_command_line(line: &str) -> Option<u64> {
    let mut words = line.split_whitespace().filter_map(|word| word.split_once('='));
    let (_, value) = words
        .find(|(name, _)| name.trim_start_matches('-').replace('-', "_") == "max_connections")?;
    value.parse().ok()
}

fn in_files(world: &World, patterns: &[&str]) -> Option<(u64, String)> {
    let files = patterns.iter().flat_map(|pattern| world.glob(pattern));
    let mut settings = files.filter_map(|file| {
        let text = world.read(&file).ok()?;
        let lines = text.lines().filter_map(|line| line.split('#').next()?.split_once('='));
        let mut set = lines.filter(|(name, _)| name.trim().replace('-', "_") == "max_connections");
        let value = set.next_back()?.1.trim().parse().ok()?;
        Some((value, file))
    });
    settings.next_back()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixture;
    use std::time::Duration;

    fn process(pid: i32, parent: i32, name: &str, title: &str) -> Proc {
        Proc { pid, parent, name: name.to_owned(), title: title.to_owned(), user: Some(27) }
    }

    #[test]
    fn the_limit_is_that_of_the_command_line_or_the_files_or_the_default() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("etc/mysql/mariadb.conf.d");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(
            folder.join("50.cnf"),
            "[mysqld]\n#max_connections = 5\nmax-connections = 60 # x\n",
        )
        .unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(60));
        let all = vec![
            process(1, 0, "mariadbd", "/usr/sbin/mariadbd"),
            process(2, 0, "mysqld", "mysqld --max-connections=40"),
            process(3, 0, "postgres", "postgres -D x"),
            process(4, 3, "postgres", "postgres: writer"),
            process(5, 0, "bash", "bash"),
        ];
        let found = databases(&world, &Ok(all), &[33]).unwrap();
        let numbers: Vec<u64> = found.iter().map(|database| database.max_connections).collect();
        assert_eq!(numbers, [60, 40, 100]);
        assert_eq!(found[0].place, "/etc/mysql/mariadb.conf.d/50.cnf");
    }

    #[test]
    fn a_process_of_a_pools_user_is_no_database_whatever_its_name() {
        let services = fixture::php_fpm().services;
        assert_eq!(tenants(&services, 0), [33]);
        assert!(tenants(&services, 33).is_empty(), "the user who asks");
        let root = tempfile::tempdir().unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(60));
        let mysqld = process(1, 0, "mysqld", "mysqld --max_connections=5");
        let all = Ok(vec![
            Proc { user: Some(33), ..mysqld.clone() },
            // One that has several users at a time, as a setuid program does.
            Proc { pid: 2, user: None, ..mysqld.clone() },
            Proc { pid: 3, ..mysqld },
        ]);
        let found = databases(&world, &all, &[33]).unwrap();
        let names: Vec<&str> = found.iter().map(|database| database.name.as_str()).collect();
        assert_eq!(names, ["MySQL (process 3)"]);
    }
}
