<?php
/**
 * The script of a pool with `mode = "snapshot"` that runs WordPress. Belongs beside WordPress' index.php;
 * 0-maitred-snapshot.php says where the boot ends.
 *
 * @package Maitred
 */

define( 'MAITRED_BOOTS', function_exists( 'maitred_snapshot' ) );

// Before plugins, wp-config.php may depend on the request, what it includes, and wp-content/db.php. Then the boot ends there.
if ( MAITRED_BOOTS && function_exists( 'maitred_before_request_read' ) ) {
	maitred_before_request_read(
		function ( $what ) {
			// A function of PHP is a frame of its own, without a file.
			$frames = debug_backtrace( DEBUG_BACKTRACE_IGNORE_ARGS, 2 );
			$frame  = isset( $frames[0]['file'] ) ? $frames[0] : $frames[1];
			$file   = isset( $frame['file'] ) ? $frame['file'] : '';
			$is_own = dirname( $file ) === __DIR__ && 'wp-config.php' !== basename( $file );
			if ( '' === $file || $is_own || 0 === strpos( $file, __DIR__ . '/wp-includes/' ) ) {
				return true;
			}
			// phpcs:ignore WordPress.PHP.DevelopmentFunctions.error_log_error_log
			error_log( "maitred snapshot: the boot ends before plugins are loaded: $what in $file on line {$frame['line']}" );
			define( 'MAITRED_BOOT_HAS_ENDED', true );
			maitred_snapshot();
			foreach ( array( 'wp_fix_server_vars', 'wp_maintenance', 'timer_start', 'wp_debug_mode' ) as $renew ) {
				if ( function_exists( 'wp_fix_server_vars' ) && class_exists( 'wpdb', false ) ) {
					$renew();
				}
			}
			return false;
		}
	);
}

require __DIR__ . '/index.php';
