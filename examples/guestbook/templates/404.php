<?php /** @var string $path */ ?>
<section class="notice">
<h2>No such page</h2>
<p>There is nothing at <code><?= e($path) ?></code>. The entries are on <a href="/">the first page</a>.</p>
</section>
