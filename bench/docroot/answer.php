<?php

// Answers with ?bytes=… bytes.
echo str_repeat('x', (int) $_GET['bytes']);
