<?php /** @var string $allowed */ ?>
<section class="notice">
<h2>That cannot be done here</h2>
<p>This address answers to <code><?= e($allowed) ?></code> only.</p>
</section>
