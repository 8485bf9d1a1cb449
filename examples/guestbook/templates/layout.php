<?php /** @var string $title @var string $content */ ?>
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title><?= e($title) ?></title>
<link rel="icon" href="/images/favicon.png" type="image/png">
<link rel="stylesheet" href="/style.css">
</head>
<body>
<header>
<a href="/"><img src="/images/quill.svg" alt="" width="44" height="44"> Guestbook</a>
</header>
<main>
<?= $content ?>
</main>
<footer>
Served by <?= e($_SERVER['SERVER_SOFTWARE'] ?? 'an unnamed server') ?>, with PHP <?= e(PHP_VERSION) ?> and SQLite. Also as <a href="/api/entries">JSON</a>.
</footer>
</body>
</html>
