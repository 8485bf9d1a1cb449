<?php
// request: GET {self}
// expect: X-One: 1
header('X-One: 1');
header('X-Two: a');
header('X-Two: b', false);
header('X-Replaced: old');
header('X-Replaced: new');
header('X-Removed: gone');
header_remove('X-Removed');
header('x-lower: kept as written');
header('X-Empty:');
header('X-Spaces:   around   ');
header("X-Latin: \xe9");
header('X-Colon: a: b');
header('Content-Type: text/plain; charset=iso-8859-1');
header('Cache-Control: max-age=60');
header('Link: </a.css>; rel=preload', false);
header('Link: </b.css>; rel=preload', false);
echo implode("\n", headers_list());
