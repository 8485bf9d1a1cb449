<?php
/**
 * Plugin Name: maitred snapshot
 * Description: Ends the boot of a WordPress that maitred copies: before any plugin is loaded, or after all of them are.
 * Version: 0.1.0
 * Requires at least: 5.6
 * Requires PHP: 7.0
 * License: MIT
 * License URI: https://opensource.org/license/mit
 *
 * Belongs into wp-content/mu-plugins/, whose files are loaded by name: this one has to be the first. It does
 * nothing unless maitred-index.php is what is run.
 *
 * With `define( 'MAITRED_SNAPSHOT_WITH_PLUGINS', true );` in wp-config.php, plugins, theme and the action `init`
 * are part of the boot. That is for sites whose plugins do not look at the request before `wp_loaded`.
 *
 * @package Maitred
 */

defined( 'ABSPATH' ) || exit;

/**
 * Returns in a copy, with its request; elsewhere at once.
 */
function maitred_snapshot_wordpress() {
	global $wpdb;

	if ( ! defined( 'MAITRED_BOOTS' ) || ! MAITRED_BOOTS ) {
		return;
	}
	$why = maitred_snapshot_obstacle();
	if ( $why ) {
		// phpcs:ignore WordPress.PHP.DevelopmentFunctions.error_log_trigger_error
		trigger_error( 'maitred snapshot: ' . esc_html( $why ), E_USER_ERROR );
	}
	$settings = maitred_snapshot_settings();
	// No copy shares a connection, or what was read over it.
	$wpdb->close();
	wp_cache_flush();
	maitred_snapshot();

	// What wp-settings.php has made of the boot's request, and of the time.
	wp_fix_server_vars();
	wp_maintenance();
	timer_start();
	wp_debug_mode();
	$wpdb->num_queries = 0;
	$wpdb->queries     = array();
	$wpdb->db_connect();
	if ( did_action( 'wp_loaded' ) ) {
		maitred_snapshot_renew_request();
	}
	// This copy is the last but a few that knows them as they were: maitred boots again.
	if ( maitred_snapshot_settings() !== $settings && function_exists( 'opcache_reset' ) ) {
		opcache_reset();
	}
}

/**
 * What WordPress makes of a request between its plugins and its theme, and who asks.
 */
function maitred_snapshot_renew_request() {
	global $current_user, $wp;

	wp_magic_quotes();
	do_action( 'sanitize_comment_cookies' );
	$current_user = null;
	$wp->init();
	if ( has_action( 'init', 'wp_cron' ) ) {
		wp_cron();
	}
}

/**
 * Options that the boot has used, and keeps beside the database.
 */
function maitred_snapshot_settings() {
	$names = array( 'siteurl' );
	if ( did_action( 'wp_loaded' ) ) {
		$names = array( 'siteurl', 'home', 'active_plugins', 'template', 'stylesheet', 'permalink_structure', 'category_base', 'tag_base', 'sidebars_widgets', 'WPLANG', 'db_version' );
	}
	return array_map( 'get_option', $names );
}

/**
 * Why this WordPress cannot be copied; empty: it can be.
 */
function maitred_snapshot_obstacle() {
	if ( is_multisite() ) {
		return 'a network of sites chooses the site while it boots; use a pool with mode = "classic"';
	}
	if ( defined( 'WP_CACHE' ) && WP_CACHE ) {
		return 'WP_CACHE loads advanced-cache.php while it boots, for one request; take WP_CACHE out of wp-config.php and use the page cache of maitred';
	}
	if ( wp_using_ext_object_cache() ) {
		return 'object-cache.php keeps a connection, or what it has read, for all copies; remove that file or use a pool with mode = "classic"';
	}
	return '';
}

if ( defined( 'MAITRED_SNAPSHOT_WITH_PLUGINS' ) && MAITRED_SNAPSHOT_WITH_PLUGINS ) {
	add_action( 'wp_loaded', 'maitred_snapshot_wordpress', PHP_INT_MAX );
} else {
	maitred_snapshot_wordpress();
}
