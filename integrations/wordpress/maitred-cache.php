<?php
/**
 * Plugin Name: maitred cache
 * Description: Tells maitred's page cache what each page shows, and has it drop the pages that a change touches.
 * Version: 0.1.0
 * Requires at least: 5.6
 * Requires PHP: 7.0
 * License: MIT
 * License URI: https://opensource.org/license/mit
 *
 * Belongs into wp-content/mu-plugins/ together with the folder maitred-cache, and runs there without being
 * activated.
 *
 * Each page that may be kept goes out with tags (`Cache-Groups`, RFC 9875). N is the number of the
 * site in a network, 1 where there is none:
 *
 *     wp, wpN             every page; every page of this site
 *     wpN-post-ID         shows this post, page or product
 *     wpN-home            the blog's first pages
 *     wpN-feed            a feed
 *     wpN-term-ID         lists a category, tag or other term (by its term_taxonomy_id)
 *     wpN-author-ID       lists an author's posts
 *     wpN-date-YEAR       lists a day's, month's or year's posts
 *     wpN-list-TYPE       has a list of posts of this type (a widget, a block, an archive); `any`: of all
 *     wpN-search, wpN-sitemap, wpN-404, wpN-comments
 *     wpN-many            shows more than has room in tags
 *
 * A change drops its tags with maitred_cache_purge_tags(). Where PHP has no such function, which is
 * under another server than maitred and on a command line, the answer to the request says what is to
 * be dropped (`Cache-Group-Invalidation`); where there is no such answer, a request with PURGE goes to
 * the constant MAITRED_PURGE_URL, if that is defined.
 *
 * @package Maitred
 */

defined( 'ABSPATH' ) || exit;

if ( ! is_readable( __DIR__ . '/maitred-cache/page.php' ) || ! is_readable( __DIR__ . '/maitred-cache/changes.php' ) ) {
	// phpcs:ignore WordPress.PHP.DevelopmentFunctions.error_log_error_log
	error_log( 'maitred cache: the folder maitred-cache is missing beside ' . __FILE__ . '; copy it there, or changes are seen late' );
	return;
}
require_once __DIR__ . '/maitred-cache/page.php';
require_once __DIR__ . '/maitred-cache/changes.php';

/**
 * What pages show, and what changes touch.
 */
final class Maitred_Cache {

	use Maitred_Cache_Page;
	use Maitred_Cache_Changes;

	/**
	 * Most tags of one page. The cache remembers 256.
	 */
	const MAX_TAGS = 100;

	/**
	 * Most tags that one request drops; what touches more drops everything.
	 */
	const MAX_DROPPED = 100;

	/**
	 * Bytes of a page that are held back until all of its tags are known.
	 */
	const MAX_HELD_BACK = 1048576;

	/**
	 * Seconds for which the answer to PURGE is waited for.
	 */
	const PURGE_TIMEOUT = 5;

	/**
	 * Types of posts that pages are made of, so that every page may change with them.
	 */
	const PARTS = array( 'wp_template', 'wp_template_part', 'wp_global_styles', 'wp_navigation', 'wp_block', 'nav_menu_item', 'custom_css' );

	/**
	 * Types of posts that no page shows.
	 */
	const UNSEEN = array( 'revision', 'oembed_cache', 'customize_changeset', 'user_request' );

	/**
	 * Options that are seen on many pages.
	 */
	const OPTIONS = array( 'active_plugins', 'avatar_default', 'blog_charset', 'blog_public', 'blogdescription', 'blogname', 'category_base', 'comment_order', 'comment_registration', 'comments_per_page', 'date_format', 'default_comment_status', 'default_comments_page', 'gmt_offset', 'home', 'page_comments', 'page_for_posts', 'page_on_front', 'permalink_structure', 'posts_per_page', 'posts_per_rss', 'require_name_email', 'rss_use_excerpt', 'show_avatars', 'show_on_front', 'sidebars_widgets', 'site_icon', 'site_logo', 'siteurl', 'start_of_week', 'sticky_posts', 'stylesheet', 'tag_base', 'template', 'thread_comments', 'thread_comments_depth', 'time_format', 'timezone_string', 'use_smilies', 'WPLANG' );

	/**
	 * Options of a whole network of sites that are seen on many pages.
	 */
	const NETWORK_OPTIONS = array( 'active_sitewide_plugins', 'WPLANG' );

	/**
	 * What decides whether a site of a network is shown, and where.
	 */
	const SITE_PROPERTIES = array( 'domain', 'path', 'public', 'archived', 'mature', 'spam', 'deleted' );

	/**
	 * How the names of other such options begin.
	 */
	const OPTION_PREFIXES = array( 'widget_', 'theme_mods_' );

	/**
	 * Whether this request makes a page that may be kept.
	 *
	 * @var bool
	 */
	private static $is_page = false;

	/**
	 * The tags of the page that is being made, as keys.
	 *
	 * @var array
	 */
	private static $shown = array();

	/**
	 * The tags that this request drops, as keys.
	 *
	 * @var array
	 */
	private static $dropped = array();

	/**
	 * Whether something is to be dropped and no answer can say so any more.
	 *
	 * @var bool
	 */
	private static $is_late = false;

	/**
	 * Listens to WordPress.
	 */
	public static function listen() {
		// What a page shows.
		add_action( 'template_redirect', array( __CLASS__, 'begin_page' ), 0 );
		add_action( 'pre_get_posts', array( __CLASS__, 'see_query' ), PHP_INT_MAX );
		add_action( 'pre_get_comments', array( __CLASS__, 'see_comments' ) );
		add_filter( 'get_pages', array( __CLASS__, 'see_pages' ), 10, 2 );
		// Not `wp_get_nav_menu_items`, which leaves out what is in the trash and may come back.
		add_filter( 'wp_setup_nav_menu_item', array( __CLASS__, 'see_menu_item' ) );
		add_filter( 'previous_post_link', array( __CLASS__, 'see_neighbour' ), 10, 4 );
		add_filter( 'next_post_link', array( __CLASS__, 'see_neighbour' ), 10, 4 );
		foreach ( array( 'getarchives_where', 'wp_list_categories', 'wp_tag_cloud' ) as $hook ) {
			add_filter( $hook, array( __CLASS__, 'see_summary' ) );
		}

		add_filter( 'rest_post_dispatch', array( __CLASS__, 'mark_answer' ) );

		// What a change touches.
		add_action( 'transition_post_status', array( __CLASS__, 'status_changed' ), 10, 3 );
		add_action( 'post_updated', array( __CLASS__, 'post_updated' ), 10, 3 );
		add_action( 'before_delete_post', array( __CLASS__, 'post_deleted' ) );
		add_action( 'clean_post_cache', array( __CLASS__, 'post_touched' ) );
		add_action( 'set_object_terms', array( __CLASS__, 'terms_set' ), 10, 6 );
		foreach ( array( 'add_attachment', 'edit_attachment', 'delete_attachment' ) as $hook ) {
			add_action( $hook, array( __CLASS__, 'attachment_changed' ) );
		}
		add_action( 'wp_insert_comment', array( __CLASS__, 'comment_changed' ) );
		add_action( 'edit_comment', array( __CLASS__, 'comment_changed' ) );
		add_action( 'transition_comment_status', array( __CLASS__, 'comment_moderated' ), 10, 3 );
		add_action( 'profile_update', array( __CLASS__, 'user_changed' ) );
		add_action( 'delete_user', array( __CLASS__, 'user_changed' ) );
		foreach ( array( 'edited_term', 'delete_term', 'wp_update_nav_menu' ) as $hook ) {
			add_action( $hook, array( __CLASS__, 'everything_changed' ), 10, 0 );
		}
		add_action( 'upgrader_process_complete', array( __CLASS__, 'network_changed' ), 10, 0 );
		foreach ( array( 'added_option', 'updated_option', 'deleted_option' ) as $hook ) {
			add_action( $hook, array( __CLASS__, 'option_changed' ) );
		}
		foreach ( array( 'add_site_option', 'update_site_option', 'delete_site_option' ) as $hook ) {
			add_action( $hook, array( __CLASS__, 'network_option_changed' ) );
		}
		add_action( 'wp_update_site', array( __CLASS__, 'site_changed' ), 10, 2 );
		add_action( 'wp_delete_site', array( __CLASS__, 'site_deleted' ) );

		// The same for WooCommerce, which changes products past WordPress' own hooks.
		foreach ( array( 'woocommerce_product_set_stock', 'woocommerce_variation_set_stock' ) as $hook ) {
			add_action( $hook, array( __CLASS__, 'stock_changed' ) );
		}
		foreach ( array( 'woocommerce_product_set_stock_status', 'woocommerce_variation_set_stock_status', 'woocommerce_update_product', 'woocommerce_update_product_variation' ) as $hook ) {
			add_action( $hook, array( __CLASS__, 'product_changed' ) );
		}

		add_action( 'shutdown', array( __CLASS__, 'finish' ), PHP_INT_MAX );
	}

	/**
	 * Drops what has these tags, now, and again at the end of the request: what is made in between
	 * may show the half of a change.
	 *
	 * @param array $tags The tags.
	 */
	private static function drop( $tags ) {
		$tags[] = 'many';
		self::drop_names( array_map( array( __CLASS__, 'name' ), $tags ) );
	}

	/**
	 * The same by the names that tags have in the cache.
	 *
	 * @param array $names The names; `wp` is all pages of all sites.
	 */
	private static function drop_names( $names ) {
		if ( isset( self::$dropped['wp'] ) ) {
			return;
		}
		$new = array_diff_key( array_fill_keys( $names, true ), self::$dropped );
		if ( isset( $new['wp'] ) || count( self::$dropped ) + count( $new ) > self::MAX_DROPPED ) {
			$new           = array( 'wp' => true );
			self::$dropped = array();
		}
		self::$dropped += $new;
		if ( ! $new ) {
			return;
		}
		if ( function_exists( 'maitred_cache_purge_tags' ) ) {
			maitred_cache_purge_tags( array_keys( $new ) );
		} elseif ( self::answer_is_heard() ) {
			header( 'Cache-Group-Invalidation: ' . self::listed( array_keys( self::$dropped ) ) );
		} else {
			self::$is_late = true;
		}
	}

	/**
	 * The request is over, and all changes are in the database.
	 */
	public static function finish() {
		if ( ! self::$dropped ) {
			return;
		}
		if ( function_exists( 'maitred_cache_purge_tags' ) ) {
			maitred_cache_purge_tags( array_keys( self::$dropped ) );
		} elseif ( self::$is_late && defined( 'MAITRED_PURGE_URL' ) ) {
			self::ask_for_purge();
		}
	}

	/**
	 * Sends a request with PURGE.
	 */
	private static function ask_for_purge() {
		$site   = wp_parse_url( home_url( '/' ) );
		$port   = isset( $site['port'] ) ? ':' . $site['port'] : '';
		$answer = wp_remote_request(
			MAITRED_PURGE_URL,
			array(
				'method'      => 'PURGE',
				'timeout'     => self::PURGE_TIMEOUT,
				'redirection' => 0,
				'headers'     => array(
					'Host'         => $site['host'] . $port,
					'Cache-Groups' => self::listed( array_keys( self::$dropped ) ),
				),
			)
		);
		$said   = is_wp_error( $answer ) ? $answer->get_error_message() : wp_remote_retrieve_response_message( $answer );
		if ( 200 !== wp_remote_retrieve_response_code( $answer ) || 0 !== strpos( wp_remote_retrieve_body( $answer ), 'dropped: ' ) ) {
			// phpcs:ignore WordPress.PHP.DevelopmentFunctions.error_log_error_log
			error_log( 'maitred cache: PURGE at ' . MAITRED_PURGE_URL . " has dropped nothing ($said); see purge_from in the site's [sites.cache]" );
		}
	}

	/**
	 * Whether the answer to this request can say what is to be dropped: a cache listens to the answers
	 * to requests that may change something.
	 *
	 * @return bool
	 */
	private static function answer_is_heard() {
		return ! headers_sent() && in_array( self::method(), array( 'POST', 'PUT', 'PATCH', 'DELETE' ), true );
	}

	/**
	 * The request's method; none on a command line.
	 *
	 * @return string
	 */
	private static function method() {
		// phpcs:ignore WordPress.Security.ValidatedSanitizedInput
		return isset( $_SERVER['REQUEST_METHOD'] ) ? $_SERVER['REQUEST_METHOD'] : '';
	}

	/**
	 * A tag's name in the cache, where all sites of a network are together.
	 *
	 * @param string $tag The tag; the empty one is every page of this site.
	 * @return string
	 */
	private static function name( $tag ) {
		return 'wp' . get_current_blog_id() . ( '' === $tag ? '' : "-$tag" );
	}

	/**
	 * Names as a field lists them (RFC 9651, section 3.1).
	 *
	 * @param array $names The names: letters, digits, `-` and `_`.
	 * @return string
	 */
	private static function listed( $names ) {
		return '"' . implode( '", "', $names ) . '"';
	}
}

Maitred_Cache::listen();
