<?php

// Sleeps ?ms=… milliseconds and answers with ?n=… and the configuration's number.
usleep(1000 * (int) $_GET['ms']);
echo $_GET['n'] ?? '', ' ', getenv('VERSION'), "\n";
