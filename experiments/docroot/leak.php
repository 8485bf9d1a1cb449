<?php

// Keeps ?kb=… KB for as long as the process lives, as an extension does that forgets to free them.
$c = FFI::cdef('void *malloc(size_t size); void *memset(void *at, int byte, size_t size);');
$size = 1024 * (int) $_GET['kb'];
$c->memset($c->malloc($size), 1, $size);
echo "done\n";
