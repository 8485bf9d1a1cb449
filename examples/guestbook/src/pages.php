<?php

declare(strict_types=1);

/** The site's paths and what each of them does. */

const NAME_MAX_CHARACTERS = 80;
const MESSAGE_MAX_CHARACTERS = 2000;

function dispatch(string $path): void
{
    $posts = $_SERVER['REQUEST_METHOD'] === 'POST';
    $reads = in_array($_SERVER['REQUEST_METHOD'], ['GET', 'HEAD'], true);
    if ($path === '/' || $path === '/index.php') {
        $posts ? sign() : ($reads ? show_entries() : refuse_method('GET, HEAD, POST'));
    } elseif ($path === '/api/entries') {
        $reads ? list_entries_as_json() : refuse_method('GET, HEAD');
    } elseif (preg_match('#^/pictures/([^/]+)$#D', $path, $found) === 1) {
        $reads ? (send_picture($found[1]) || not_found()) : refuse_method('GET, HEAD');
    } else {
        not_found();
    }
}

/** The page asked for by ?page=, or null if there is no such page among $pages. */
function wanted_page(int $pages): ?int
{
    $page = filter_var($_GET['page'] ?? 1, FILTER_VALIDATE_INT);
    return $page !== false && $page >= 1 && $page <= $pages ? $page : null;
}

/**
 * @param array{name?: string, message?: string} $draft what to put back into the form
 * @param list<string> $complaints what was wrong with it
 */
function show_entries(array $draft = [], array $complaints = []): void
{
    open_session();
    $count = count_entries();
    $page = wanted_page(page_count($count));
    if ($page === null) {
        not_found();
        return;
    }
    send_page($complaints === [] ? 200 : 422, 'Guestbook', 'entries', [
        'entries' => entries_on_page($page),
        'count' => $count,
        'page' => $page,
        'pages' => page_count($count),
        'draft' => $draft,
        'complaints' => $complaints,
        'flash' => take_flash(),
        'token' => $_SESSION['token'],
    ]);
}

function sign(): void
{
    open_session();
    // PHP throws a body over post_max_size away whole, token and all.
    if ($_POST === [] && (int) ($_SERVER['CONTENT_LENGTH'] ?? 0) > 0) {
        $most = ini_get('post_max_size');
        show_entries([], ["That was more than $most at once, or not a form."]);
        return;
    }
    $draft = ['name' => posted_text('name'), 'message' => posted_text('message')];
    $complaints = token_is_right()
        ? complaints_about($draft)
        : ['This form had grown too old to be sent. Please send it again.'];
    try {
        $picture = $complaints === [] ? keep_picture($_FILES['picture'] ?? null) : null;
    } catch (PictureRefused $refusal) {
        $complaints = [$refusal->getMessage()];
    }
    if ($complaints !== []) {
        show_entries($draft, $complaints);
        return;
    }
    $id = add_entry($draft['name'], $draft['message'], $picture);
    flash("Thank you, {$draft['name']}. Your entry is number $id.");
    redirect('/');
}

/** A form field as trimmed text with plain line ends; a list in its place counts as empty. */
function posted_text(string $field): string
{
    $value = $_POST[$field] ?? '';
    return is_string($value) ? trim(str_replace(["\r\n", "\r"], "\n", $value)) : '';
}

/**
 * @param array{name: string, message: string} $draft
 * @return list<string>
 */
function complaints_about(array $draft): array
{
    $limits = ['name' => NAME_MAX_CHARACTERS, 'message' => MESSAGE_MAX_CHARACTERS];
    $complaints = [];
    foreach ($limits as $field => $most) {
        // preg_match_all() counts characters without the mbstring extension; false is broken UTF-8.
        $characters = preg_match_all('/./su', $draft[$field]);
        if ($characters === false) {
            $complaints[] = "Your $field is not UTF-8 text.";
        } elseif ($characters === 0) {
            $complaints[] = "Please write your $field.";
        } elseif ($characters > $most) {
            $complaints[] = "Your $field has $characters characters; at most $most fit.";
        }
    }
    return $complaints;
}

function list_entries_as_json(): void
{
    $count = count_entries();
    $page = wanted_page(page_count($count));
    if ($page === null) {
        send_json(404, ['error' => 'There is no such page.']);
        return;
    }
    send_json(200, [
        'page' => $page,
        'pages' => page_count($count),
        'count' => $count,
        'entries' => array_map(entry_as_json(...), entries_on_page($page)),
    ]);
}

/**
 * @param array{id: int, name: string, message: string, picture: ?string, created_at: int} $entry
 * @return array<string, int|string|null>
 */
function entry_as_json(array $entry): array
{
    return [
        'id' => $entry['id'],
        'name' => $entry['name'],
        'message' => $entry['message'],
        'picture' => $entry['picture'] === null ? null : '/pictures/' . $entry['picture'],
        'created_at' => gmdate('Y-m-d\TH:i:s\Z', $entry['created_at']),
    ];
}

function not_found(): void
{
    send_page(404, 'No such page', '404', ['path' => request_path()]);
}

function refuse_method(string $allowed): void
{
    header('Allow: ' . $allowed);
    send_page(405, 'That cannot be done here', '405', ['allowed' => $allowed]);
}
