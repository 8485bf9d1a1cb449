<?php

declare(strict_types=1);

/** What every page needs of HTTP: the request's path, the session, and the ways to answer. */

/** The decoded path of the request, without its query. */
function request_path(): string
{
    // parse_url() takes "//x" for a host, so the query is cut off by hand.
    $target = explode('?', $_SERVER['REQUEST_URI'] ?? '/', 2)[0];
    return rawurldecode($target);
}

/** Text made safe for HTML, in element content and in quoted attributes. */
function e(string $text): string
{
    return htmlspecialchars($text, ENT_QUOTES | ENT_SUBSTITUTE | ENT_HTML5, 'UTF-8');
}

/** Opens the visitor's session, kept in the data directory like all else that is written. */
function open_session(): void
{
    if (session_status() === PHP_SESSION_ACTIVE) {
        return;
    }
    session_start([
        'name' => 'guestbook',
        'save_path' => data_directory('sessions'),
        'use_strict_mode' => true,
        'cookie_httponly' => true,
        'cookie_samesite' => 'Lax',
        'cookie_secure' => ($_SERVER['HTTPS'] ?? '') !== '' && $_SERVER['HTTPS'] !== 'off',
        // Debian cleans only its own session directory, so this one is swept by PHP.
        'gc_probability' => 1,
        'gc_divisor' => 1000,
    ]);
    $_SESSION['token'] ??= bin2hex(random_bytes(32));
}

/** Whether the posted form carries the token this session was given. */
function token_is_right(): bool
{
    $posted = $_POST['token'] ?? '';
    return is_string($posted) && hash_equals($_SESSION['token'], $posted);
}

/** Leaves a message for the visitor's next page. */
function flash(string $message): void
{
    $_SESSION['flash'] = $message;
}

/** Takes the message left by the previous request, if there is one. */
function take_flash(): ?string
{
    $message = $_SESSION['flash'] ?? null;
    unset($_SESSION['flash']);
    return $message;
}

/** Sends the visitor on with 303, so that reloading the next page posts nothing again. */
function redirect(string $to): void
{
    header('Location: ' . $to, true, 303);
}

/**
 * Sends templates/$template.php inside the layout.
 *
 * @param array<string, mixed> $values the template's variables
 */
function send_page(int $status, string $title, string $template, array $values = []): void
{
    http_response_code($status);
    header('Content-Type: text/html; charset=utf-8');
    header("Content-Security-Policy: default-src 'self'; form-action 'self'; base-uri 'none'");
    header('X-Content-Type-Options: nosniff');
    $content = render($template, $values);
    echo render('layout', ['title' => $title, 'content' => $content]);
}

/** @param array<string, mixed> $values */
function render(string $template, array $values): string
{
    extract($values, EXTR_SKIP);
    ob_start();
    require __DIR__ . '/../templates/' . $template . '.php';
    return (string) ob_get_clean();
}

/** @param array<mixed> $value */
function send_json(int $status, array $value): void
{
    http_response_code($status);
    header('Content-Type: application/json');
    header('X-Content-Type-Options: nosniff');
    $flags = JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_UNESCAPED_UNICODE;
    echo json_encode($value, $flags), "\n";
}
