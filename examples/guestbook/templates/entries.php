<?php
/**
 * @var list<array{id: int, name: string, message: string, picture: ?string, created_at: int}> $entries
 * @var int $count @var int $page @var int $pages
 * @var array{name?: string, message?: string} $draft @var list<string> $complaints
 * @var ?string $flash @var string $token
 */
?>
<?php if ($flash !== null): ?>
<p class="flash" role="status"><?= e($flash) ?></p>
<?php endif ?>
<form method="post" action="/" enctype="multipart/form-data">
<h2>Leave a line</h2>
<?php foreach ($complaints as $complaint): ?>
<p class="complaint" role="alert"><?= e($complaint) ?></p>
<?php endforeach ?>
<input type="hidden" name="token" value="<?= e($token) ?>">
<label>Your name
<input name="name" required maxlength="<?= NAME_MAX_CHARACTERS ?>" autocomplete="name" value="<?= e($draft['name'] ?? '') ?>"></label>
<label>Your message
<textarea name="message" required maxlength="<?= MESSAGE_MAX_CHARACTERS ?>" rows="4"><?= "\n" . e($draft['message'] ?? '') ?></textarea></label>
<label>A picture, if you like
<input type="file" name="picture" accept="<?= e(implode(',', PICTURE_TYPES)) ?>"></label>
<button>Sign the guestbook</button>
</form>
<section>
<h2><?= $count === 0 ? 'Nobody has written yet' : ($count === 1 ? 'One entry' : "$count entries") ?></h2>
<?php foreach ($entries as $entry): ?>
<article id="entry-<?= $entry['id'] ?>">
<h3><?= e($entry['name']) ?></h3>
<time datetime="<?= gmdate('Y-m-d\TH:i:s\Z', $entry['created_at']) ?>"><?= gmdate('j F Y, H:i', $entry['created_at']) ?> UTC</time>
<p><?= nl2br(e($entry['message'])) ?></p>
<?php if ($entry['picture'] !== null): ?>
<img src="/pictures/<?= e($entry['picture']) ?>" alt="A picture from <?= e($entry['name']) ?>" loading="lazy">
<?php endif ?>
</article>
<?php endforeach ?>
<?php if ($pages > 1): ?>
<nav aria-label="Pages">
<?php if ($page > 1): ?><a rel="prev" href="/?page=<?= $page - 1 ?>">Newer</a><?php endif ?>
<span>Page <?= $page ?> of <?= $pages ?></span>
<?php if ($page < $pages): ?><a rel="next" href="/?page=<?= $page + 1 ?>">Older</a><?php endif ?>
</nav>
<?php endif ?>
</section>
