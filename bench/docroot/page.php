<?php
// A page of 10 KB that may be kept.
header('Cache-Control: max-age=1800');
header('Content-Type: text/plain; charset=utf-8');
echo str_repeat("All work and no cache makes PHP a dull boy.\n", 233);
