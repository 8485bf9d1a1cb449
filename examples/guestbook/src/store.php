<?php

declare(strict_types=1);

/** The entries, in one SQLite file that is made when it is first needed. */

const ENTRIES_PER_PAGE = 10;
const SCHEMA_VERSION = 1;
/** How long a query waits for another worker's write, in milliseconds. */
const BUSY_TIMEOUT_MS = 5000;

/** The data directory cannot be used; the message says why and what to do. */
final class DataUnavailable extends RuntimeException
{
}

/** The data directory: $GUESTBOOK_DATA, or var/ beside public/. */
function data_root(): string
{
    return getenv('GUESTBOOK_DATA') ?: dirname(__DIR__) . '/var';
}

/** The path of the data directory or of one beneath it, made if it is missing. */
function data_directory(string $name = ''): string
{
    $path = $name === '' ? data_root() : data_root() . '/' . $name;
    // The second look is for another worker that made it between our first look and our mkdir.
    if (!is_dir($path) && !@mkdir($path, 0770, true) && !is_dir($path)) {
        throw new DataUnavailable("The directory $path does not exist and could not be made.");
    }
    if (!is_writable($path)) {
        throw new DataUnavailable("The directory $path is not writable.");
    }
    return $path;
}

/** The database, opened once per request. */
function database(): PDO
{
    static $database = null;
    return $database ??= open_database();
}

function open_database(): PDO
{
    if (!extension_loaded('pdo_sqlite')) {
        throw new DataUnavailable(
            'PHP has no pdo_sqlite extension; Debian and Ubuntu have it in the package php-sqlite3.',
        );
    }
    $file = data_directory() . '/guestbook.sqlite';
    if (file_exists($file) && !is_writable($file)) {
        throw new DataUnavailable("The file $file is not writable.");
    }
    try {
        $database = new PDO('sqlite:' . $file, options: [
            PDO::ATTR_ERRMODE => PDO::ERRMODE_EXCEPTION,
            PDO::ATTR_DEFAULT_FETCH_MODE => PDO::FETCH_ASSOC,
        ]);
        $database->exec('PRAGMA busy_timeout = ' . BUSY_TIMEOUT_MS);
        if (schema_version($database) < SCHEMA_VERSION) {
            create_schema($database);
        }
    } catch (PDOException $error) {
        $reason = $error->getMessage();
        throw new DataUnavailable("The database $file cannot be used: $reason.", 0, $error);
    }
    return $database;
}

function schema_version(PDO $database): int
{
    return (int) $database->query('PRAGMA user_version')->fetchColumn();
}

function create_schema(PDO $database): void
{
    // SQLite does not wait for a busy database when the journal mode changes, so workers that
    // start together take turns.
    $turn = fopen(data_directory() . '/schema.lock', 'c');
    if ($turn === false || !flock($turn, LOCK_EX)) {
        throw new DataUnavailable('The file schema.lock in the data directory cannot be locked.');
    }
    if (schema_version($database) < SCHEMA_VERSION) {
        $database->exec('PRAGMA journal_mode = WAL');
        $database->exec('CREATE TABLE entries (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            name TEXT NOT NULL,
            message TEXT NOT NULL,
            picture TEXT,
            created_at INTEGER NOT NULL
        )');
        $database->exec('PRAGMA user_version = ' . SCHEMA_VERSION);
    }
    fclose($turn);
}

function count_entries(): int
{
    return (int) database()->query('SELECT count(*) FROM entries')->fetchColumn();
}

/**
 * One page of entries, the newest first; pages count from 1.
 *
 * @return list<array{id: int, name: string, message: string, picture: ?string, created_at: int}>
 */
function entries_on_page(int $page): array
{
    $query = database()->prepare(
        'SELECT id, name, message, picture, created_at
        FROM entries ORDER BY id DESC LIMIT ? OFFSET ?',
    );
    $query->bindValue(1, ENTRIES_PER_PAGE, PDO::PARAM_INT);
    $query->bindValue(2, ($page - 1) * ENTRIES_PER_PAGE, PDO::PARAM_INT);
    $query->execute();
    return $query->fetchAll();
}

function add_entry(string $name, string $message, ?string $picture): int
{
    $insert = database()->prepare(
        'INSERT INTO entries (name, message, picture, created_at) VALUES (?, ?, ?, ?)',
    );
    $insert->execute([$name, $message, $picture, time()]);
    return (int) database()->lastInsertId();
}

/** How many pages there are; an empty guestbook has one. */
function page_count(int $entries): int
{
    return max(1, intdiv($entries + ENTRIES_PER_PAGE - 1, ENTRIES_PER_PAGE));
}
