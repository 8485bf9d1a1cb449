<?php
/** @var DataUnavailable $problem */
$account = function_exists('posix_geteuid') ? posix_getpwuid(posix_geteuid()) : false;
$user = $account === false ? 'www-data' : $account['name'];
?>
<section class="notice">
<h2>The guestbook cannot open its data</h2>
<p><?= e($problem->getMessage()) ?></p>
<p>The user that PHP runs as (here <code><?= e($user) ?></code>) needs a directory to write to, for example</p>
<pre>sudo install -d -o <?= e($user) ?> <?= e(escapeshellarg(data_root())) ?></pre>
<p>or name another one in the environment variable <code>GUESTBOOK_DATA</code>.</p>
</section>
