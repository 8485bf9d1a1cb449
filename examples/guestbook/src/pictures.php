<?php

declare(strict_types=1);

/** Uploaded pictures: checked, kept outside the served tree, sent with a type of our choosing. */

const PICTURE_TYPES = [
    IMAGETYPE_GIF => 'image/gif',
    IMAGETYPE_JPEG => 'image/jpeg',
    IMAGETYPE_PNG => 'image/png',
    IMAGETYPE_WEBP => 'image/webp',
];
const PICTURE_MAX_SIDE_PX = 10_000;
const PICTURE_NAME = '/^[0-9a-f]{32}$/D';

/** What the visitor sent as a picture cannot be taken; the message is for them. */
final class PictureRefused extends RuntimeException
{
}

/**
 * Keeps the uploaded picture and returns its name, or null if none was sent.
 *
 * @param array<string, mixed>|null $upload an element of $_FILES
 */
function keep_picture(?array $upload): ?string
{
    $error = $upload['error'] ?? UPLOAD_ERR_NO_FILE;
    if ($error === UPLOAD_ERR_NO_FILE) {
        return null;
    }
    if ($error === UPLOAD_ERR_INI_SIZE || $error === UPLOAD_ERR_FORM_SIZE) {
        $most = ini_get('upload_max_filesize');
        throw new PictureRefused("That picture is larger than $most.");
    }
    if ($error !== UPLOAD_ERR_OK) {
        throw new PictureRefused('That picture did not arrive whole. Please send it again.');
    }
    picture_type_of($upload['tmp_name']);
    $name = bin2hex(random_bytes(16));
    if (!move_uploaded_file($upload['tmp_name'], data_directory('pictures') . '/' . $name)) {
        throw new DataUnavailable('The picture could not be moved into the data directory.');
    }
    return $name;
}

/** The media type of a picture file, from its content and never from its name. */
function picture_type_of(string $file): string
{
    $size = @getimagesize($file);
    $type = $size === false ? null : PICTURE_TYPES[$size[2]] ?? null;
    if ($type === null) {
        throw new PictureRefused('A picture must be a GIF, JPEG, PNG or WebP file.');
    }
    if (min($size[0], $size[1]) < 1 || max($size[0], $size[1]) > PICTURE_MAX_SIDE_PX) {
        $most = PICTURE_MAX_SIDE_PX;
        throw new PictureRefused("A picture may have at most $most pixels a side.");
    }
    return $type;
}

/** Sends a kept picture; false if there is none of that name. */
function send_picture(string $name): bool
{
    $file = preg_match(PICTURE_NAME, $name) === 1 ? data_directory('pictures') . '/' . $name : '';
    if ($file === '' || !is_file($file)) {
        return false;
    }
    // A name is never used twice, so what it stands for never changes.
    $etag = '"' . $name . '"';
    header('Cache-Control: public, max-age=31536000, immutable');
    header('ETag: ' . $etag);
    $known = array_map('trim', explode(',', $_SERVER['HTTP_IF_NONE_MATCH'] ?? ''));
    if (in_array($etag, $known, true)) {
        http_response_code(304);
        return true;
    }
    header('Content-Type: ' . picture_type_of($file));
    header('Content-Length: ' . filesize($file));
    header('X-Content-Type-Options: nosniff');
    header("Content-Security-Policy: default-src 'none'");
    if ($_SERVER['REQUEST_METHOD'] !== 'HEAD') {
        readfile($file);
    }
    return true;
}
