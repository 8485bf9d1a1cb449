<?php

// Ends its process as a fault of PHP does.
posix_kill(getmypid(), 11);
usleep(1000000);
