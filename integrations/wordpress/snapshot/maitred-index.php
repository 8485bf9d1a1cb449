<?php
/**
 * The script of a pool with `mode = "snapshot"` that runs WordPress. Belongs beside WordPress' index.php;
 * 0-maitred-snapshot.php says where the boot ends.
 *
 * @package Maitred
 */

define( 'MAITRED_BOOTS', function_exists( 'maitred_snapshot' ) );

require __DIR__ . '/index.php';
