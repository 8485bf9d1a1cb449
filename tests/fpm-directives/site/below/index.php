<?php echo "below\n", ini_get("precision"), "\n";
