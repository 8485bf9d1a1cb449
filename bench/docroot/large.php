<?php

// Answers with ?mb=… megabytes.
echo str_repeat('x', 1048576 * (int) $_GET['mb']);
