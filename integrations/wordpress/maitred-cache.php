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
 * Belongs into wp-content/mu-plugins/, where it runs without being activated.
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

/**
 * What pages show, and what changes touch.
 */
final class Maitred_Cache {

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
		foreach ( array( 'edited_term', 'delete_term', 'wp_update_nav_menu', 'upgrader_process_complete' ) as $hook ) {
			add_action( $hook, array( __CLASS__, 'everything_changed' ), 10, 0 );
		}
		foreach ( array( 'added_option', 'updated_option', 'deleted_option' ) as $hook ) {
			add_action( $hook, array( __CLASS__, 'option_changed' ) );
		}

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
	 * The main query is done, and nothing has been sent yet.
	 */
	public static function begin_page() {
		if ( 'GET' !== self::method() || is_user_logged_in() ) {
			return;
		}
		self::$is_page = true;
		self::see_main_query( $GLOBALS['wp_query'] );
		self::send_tags();
		// Widgets and blocks have queries of their own, which come when the page has begun.
		ob_start( array( __CLASS__, 'end_page' ), self::MAX_HELD_BACK );
	}

	/**
	 * The page, or as much as is held back of it, is on its way.
	 *
	 * @param string $content What is sent.
	 * @param int    $phase   Which part of the page it is (PHP_OUTPUT_HANDLER_*).
	 * @return string The same.
	 */
	public static function end_page( $content, $phase ) {
		if ( ! ( $phase & PHP_OUTPUT_HANDLER_FINAL ) ) {
			// What is still to come shows nobody knows what.
			self::show( 'many' );
		}
		self::send_tags();
		return $content;
	}

	/**
	 * Says that an answer of the REST API's is not to be kept: it has no tags.
	 *
	 * @param WP_HTTP_Response $answer The answer.
	 * @return WP_HTTP_Response The same.
	 */
	public static function mark_answer( $answer ) {
		if ( $answer instanceof WP_HTTP_Response ) {
			$answer->header( 'CDN-Cache-Control', 'no-store' );
		}
		return $answer;
	}

	/**
	 * Sends the page's tags.
	 */
	private static function send_tags() {
		if ( headers_sent() ) {
			return;
		}
		if ( defined( 'DONOTCACHEPAGE' ) && DONOTCACHEPAGE ) {
			// What plugins for caches agree on: carts, accounts, forms with a token.
			header_remove( 'Cache-Groups' );
			header( 'CDN-Cache-Control: no-store' );
			return;
		}
		if ( count( self::$shown ) > self::MAX_TAGS ) {
			self::$shown = array( self::name( 'many' ) => true );
		}
		$names = array_keys( self::$shown );
		array_unshift( $names, 'wp', self::name( '' ) );
		header( 'Cache-Groups: ' . self::listed( $names ) );
	}

	/**
	 * Notes what the page's own query shows.
	 *
	 * @param WP_Query $query The query.
	 */
	private static function see_main_query( $query ) {
		if ( $query->is_robots() || $query->is_favicon() ) {
			return;
		}
		if ( $query->get( 'sitemap' ) || $query->get( 'sitemap-stylesheet' ) ) {
			// The query itself is that of the front page, and nobody sees its posts.
			self::show( 'sitemap' );
			return;
		}
		$kinds = array(
			'404'    => $query->is_404(),
			'home'   => $query->is_home(),
			'search' => $query->is_search(),
			'feed'   => $query->is_feed() && ! $query->is_comment_feed(),
		);
		foreach ( array_keys( array_filter( $kinds ) ) as $kind ) {
			self::show( (string) $kind );
		}
		if ( $query->is_comment_feed() && ! $query->is_singular() ) {
			self::show( 'comments' );
		}
		$object = $query->get_queried_object();
		if ( $object instanceof WP_Term ) {
			self::show( 'term-' . $object->term_taxonomy_id );
		} elseif ( $query->is_author() ) {
			self::show( 'author-' . (int) $query->get( 'author' ) );
		}
		if ( $query->is_date() ) {
			$year = $query->get( 'year' );
			self::show( 'date-' . ( $year ? (int) $year : substr( (string) $query->get( 'm' ), 0, 4 ) ) );
		}
		if ( $query->is_post_type_archive() ) {
			self::show_lists( $query->get( 'post_type' ) );
		}
		self::show_posts( (array) $query->posts );
	}

	/**
	 * Notes what a query of a widget's or block's shows.
	 *
	 * @param WP_Query $query The query.
	 */
	public static function see_query( $query ) {
		if ( ! self::$is_page || $query->is_main_query() ) {
			return;
		}
		$named = array_merge( array( $query->get( 'p' ), $query->get( 'page_id' ) ), (array) $query->get( 'post__in' ) );
		$named = array_filter( $named );
		if ( $named ) {
			self::show_posts( $named );
		} else {
			self::show_lists( $query->get( 'post_type' ) );
		}
	}

	/**
	 * Notes whose comments are shown.
	 *
	 * @param WP_Comment_Query $query The query.
	 */
	public static function see_comments( $query ) {
		if ( self::$is_page ) {
			$post = isset( $query->query_vars['post_id'] ) ? (int) $query->query_vars['post_id'] : 0;
			self::show( $post ? "post-$post" : 'comments' );
		}
	}

	/**
	 * Notes a list of pages, as menus have it.
	 *
	 * @param array $pages The pages.
	 * @param array $args  What was asked for.
	 * @return array The pages.
	 */
	public static function see_pages( $pages, $args ) {
		if ( self::$is_page ) {
			self::show_lists( isset( $args['post_type'] ) ? $args['post_type'] : 'page' );
		}
		return $pages;
	}

	/**
	 * Notes a link to the post before or after.
	 *
	 * @param string          $link   The link.
	 * @param string          $format Its format.
	 * @param string          $text   Its text.
	 * @param WP_Post|string  $post   The post.
	 * @return string The link.
	 */
	public static function see_neighbour( $link, $format, $text, $post ) {
		if ( self::$is_page && $post instanceof WP_Post ) {
			self::show_posts( array( $post ) );
		}
		return $link;
	}

	/**
	 * Notes a list of months, categories or tags, which a new post may be the first of.
	 *
	 * @param mixed $shown The list.
	 * @return mixed The list.
	 */
	public static function see_summary( $shown ) {
		if ( self::$is_page ) {
			self::show( 'list-post' );
		}
		return $shown;
	}

	/**
	 * Notes posts.
	 *
	 * @param array $posts Posts, or their IDs.
	 */
	private static function show_posts( $posts ) {
		foreach ( $posts as $post ) {
			self::show( 'post-' . (int) ( is_object( $post ) ? $post->ID : $post ) );
			if ( count( self::$shown ) > self::MAX_TAGS ) {
				return;
			}
		}
	}

	/**
	 * Notes lists of posts.
	 *
	 * @param string|array $types The types of the posts.
	 */
	private static function show_lists( $types ) {
		foreach ( array_diff( (array) ( $types ? $types : 'post' ), self::PARTS, self::UNSEEN ) as $type ) {
			self::show( 'list-' . sanitize_key( $type ) );
		}
	}

	/**
	 * Notes a tag of the page.
	 *
	 * @param string $tag The tag.
	 */
	private static function show( $tag ) {
		self::$shown[ self::name( $tag ) ] = true;
	}

	/**
	 * A post has another status, or was saved with the one it has.
	 *
	 * @param string  $new_status The status.
	 * @param string  $old_status The one before.
	 * @param WP_Post $post       The post.
	 */
	public static function status_changed( $new_status, $old_status, $post ) {
		if ( 'publish' !== $new_status && 'publish' !== $old_status ) {
			return;
		}
		self::post_changed( $post );
		if ( $new_status !== $old_status ) {
			self::neighbours_changed( $post );
		}
	}

	/**
	 * A post was saved: what listed it as it was, does not any more.
	 *
	 * @param int     $post_id The post's ID.
	 * @param WP_Post $after   The post.
	 * @param WP_Post $before  The post as it was.
	 */
	public static function post_updated( $post_id, $after, $before ) {
		if ( 'publish' === $before->post_status ) {
			self::post_changed( $before );
			if ( $after->post_date !== $before->post_date ) {
				self::neighbours_changed( $before );
				self::neighbours_changed( $after );
			}
		}
	}

	/**
	 * A post is about to be deleted.
	 *
	 * @param int $post_id The post's ID.
	 */
	public static function post_deleted( $post_id ) {
		$post = get_post( $post_id );
		if ( $post && 'publish' === $post->post_status ) {
			self::post_changed( $post );
			self::neighbours_changed( $post );
		}
	}

	/**
	 * Something about a post is not what it was: the number of its comments, what a plugin keeps.
	 *
	 * @param int $post_id The post's ID.
	 */
	public static function post_touched( $post_id ) {
		$post = get_post( $post_id );
		if ( $post && 'publish' === $post->post_status && ! in_array( $post->post_type, self::UNSEEN, true ) ) {
			self::drop( array( 'post-' . $post->ID ) );
		}
	}

	/**
	 * A post is in other categories, or has other tags.
	 *
	 * @param int    $post_id  The post's ID.
	 * @param array  $terms    Its terms.
	 * @param array  $tt_ids   Their term_taxonomy_ids.
	 * @param string $taxonomy Their taxonomy.
	 * @param bool   $append   Whether they come to those that it had.
	 * @param array  $old      The term_taxonomy_ids that it had.
	 */
	public static function terms_set( $post_id, $terms, $tt_ids, $taxonomy, $append, $old ) {
		$changed = array_merge( array_diff( $tt_ids, $old ), $append ? array() : array_diff( $old, $tt_ids ) );
		$post    = get_post( $post_id );
		if ( $changed && $post && 'publish' === $post->post_status ) {
			$tags = array( 'post-' . $post->ID );
			foreach ( $changed as $tt_id ) {
				$term = get_term_by( 'term_taxonomy_id', $tt_id );
				$tags = array_merge( $tags, $term ? self::tags_of_term( $term ) : array() );
			}
			self::drop( $tags );
		}
	}

	/**
	 * A file was uploaded, described anew, or deleted.
	 *
	 * @param int $post_id The attachment's ID.
	 */
	public static function attachment_changed( $post_id ) {
		$tags   = array( 'post-' . (int) $post_id, 'list-attachment', 'list-any' );
		$parent = wp_get_post_parent_id( $post_id );
		if ( $parent ) {
			$tags[] = 'post-' . $parent;
		}
		self::drop( $tags );
	}

	/**
	 * A comment was written or edited. Nobody sees one that is not approved.
	 *
	 * @param int $comment_id The comment's ID.
	 */
	public static function comment_changed( $comment_id ) {
		$comment = get_comment( $comment_id );
		if ( $comment && '1' === (string) $comment->comment_approved ) {
			self::drop( array( 'post-' . (int) $comment->comment_post_ID, 'comments' ) );
		}
	}

	/**
	 * A comment was approved, or is not any more.
	 *
	 * @param string     $new_status The status.
	 * @param string     $old_status The one before.
	 * @param WP_Comment $comment    The comment.
	 */
	public static function comment_moderated( $new_status, $old_status, $comment ) {
		if ( 'approved' === $new_status || 'approved' === $old_status ) {
			self::drop( array( 'post-' . (int) $comment->comment_post_ID, 'comments' ) );
		}
	}

	/**
	 * A user has another name, or goes. Only those who have written something are seen.
	 *
	 * @param int $user_id The user's ID.
	 */
	public static function user_changed( $user_id ) {
		if ( count_user_posts( $user_id, get_post_types( array( 'public' => true ) ), true ) > 0 ) {
			self::everything_changed();
		}
	}

	/**
	 * An option has another value.
	 *
	 * @param string $option Its name.
	 */
	public static function option_changed( $option ) {
		$is_seen = in_array( $option, self::OPTIONS, true );
		foreach ( self::OPTION_PREFIXES as $prefix ) {
			$is_seen = $is_seen || 0 === strpos( $option, $prefix );
		}
		if ( $is_seen ) {
			self::everything_changed();
		}
	}

	/**
	 * More or fewer of a product are there.
	 *
	 * @param WC_Product $product The product, or one of its variations.
	 */
	public static function stock_changed( $product ) {
		self::drop( self::tags_of_product( $product->get_id() ) );
	}

	/**
	 * A product is there or is not any more, or has another price.
	 *
	 * @param int $product_id The ID of the product, or of one of its variations.
	 */
	public static function product_changed( $product_id ) {
		$tags   = self::tags_of_product( $product_id );
		$tags[] = 'list-product';
		self::drop( $tags );
	}

	/**
	 * Any page may look different.
	 */
	public static function everything_changed() {
		self::drop( array( '' ) );
	}

	/**
	 * A post that everybody sees, or saw, is another one.
	 *
	 * @param WP_Post $post The post.
	 */
	private static function post_changed( $post ) {
		$type = $post->post_type;
		if ( in_array( $type, self::UNSEEN, true ) ) {
			return;
		}
		if ( in_array( $type, self::PARTS, true ) ) {
			self::everything_changed();
			return;
		}
		$tags = array( 'post-' . $post->ID, 'list-' . sanitize_key( $type ), 'list-any' );
		if ( $post->post_parent ) {
			$tags[] = 'post-' . (int) $post->post_parent;
		}
		if ( is_post_type_viewable( $type ) ) {
			array_push( $tags, '404', 'search', 'sitemap' );
			if ( 'page' !== $type ) {
				array_push( $tags, 'home', 'feed', 'author-' . (int) $post->post_author, 'date-' . substr( $post->post_date, 0, 4 ) );
			}
			foreach ( get_object_taxonomies( $post ) as $taxonomy ) {
				$terms = is_taxonomy_viewable( $taxonomy ) ? get_the_terms( $post->ID, $taxonomy ) : false;
				foreach ( is_array( $terms ) ? $terms : array() as $term ) {
					$tags = array_merge( $tags, self::tags_of_term( $term ) );
				}
			}
		}
		self::drop( $tags );
	}

	/**
	 * The posts before and after one link to it, or do not any more.
	 *
	 * @param WP_Post $post The post.
	 */
	private static function neighbours_changed( $post ) {
		if ( ! is_post_type_viewable( $post->post_type ) ) {
			return;
		}
		$before = isset( $GLOBALS['post'] ) ? $GLOBALS['post'] : null;
		// get_adjacent_post() knows the present post only by this name.
		$GLOBALS['post'] = $post; // phpcs:ignore WordPress.WP.GlobalVariablesOverride.Prohibited
		foreach ( array( true, false ) as $is_previous ) {
			$neighbour = get_adjacent_post( false, '', $is_previous );
			if ( $neighbour instanceof WP_Post ) {
				self::drop( array( 'post-' . $neighbour->ID ) );
			}
		}
		$GLOBALS['post'] = $before; // phpcs:ignore WordPress.WP.GlobalVariablesOverride.Prohibited
	}

	/**
	 * The tags of the pages that list a term's posts: those of what it is part of do, too.
	 *
	 * @param WP_Term $term The term.
	 * @return array The tags.
	 */
	private static function tags_of_term( $term ) {
		$tags = array( 'term-' . (int) $term->term_taxonomy_id );
		foreach ( get_ancestors( $term->term_id, $term->taxonomy, 'taxonomy' ) as $ancestor ) {
			$ancestor = get_term( $ancestor, $term->taxonomy );
			if ( $ancestor instanceof WP_Term ) {
				$tags[] = 'term-' . (int) $ancestor->term_taxonomy_id;
			}
		}
		return $tags;
	}

	/**
	 * The tags of the pages that show a product.
	 *
	 * @param int $product_id The ID of the product, or of one of its variations.
	 * @return array The tags.
	 */
	private static function tags_of_product( $product_id ) {
		$tags   = array( 'post-' . (int) $product_id );
		$parent = wp_get_post_parent_id( $product_id );
		if ( $parent ) {
			$tags[] = 'post-' . $parent;
		}
		return $tags;
	}

	/**
	 * Drops what has these tags, now, and again at the end of the request: what is made in between
	 * may show the half of a change.
	 *
	 * @param array $tags The tags.
	 */
	private static function drop( $tags ) {
		if ( isset( self::$dropped['wp'] ) ) {
			return;
		}
		$tags[] = 'many';
		$new    = array();
		foreach ( array_map( array( __CLASS__, 'name' ), $tags ) as $name ) {
			$new[ $name ] = true;
		}
		$new = array_diff_key( $new, self::$dropped );
		if ( count( self::$dropped ) + count( $new ) > self::MAX_DROPPED ) {
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
