<?php
/**
 * What changes touch.
 *
 * Belongs to maitred-cache.php, into a folder of that name beside it.
 *
 * @package Maitred
 */

defined( 'ABSPATH' ) || exit;

/**
 * What changes touch.
 */
trait Maitred_Cache_Changes {

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
	 * A file was uploaded, described again, or deleted.
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
	 * A comment was written or edited. A comment that is not approved is not shown.
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
	 * A user has another name, or goes: at all sites of a network.
	 *
	 * @param int $user_id The user's ID.
	 */
	public static function user_changed( $user_id ) {
		self::author_changed( $user_id );
		foreach ( is_multisite() ? get_blogs_of_user( $user_id ) : array() as $site ) {
			if ( get_current_blog_id() !== (int) $site->userblog_id ) {
				switch_to_blog( $site->userblog_id );
				self::author_changed( $user_id );
				restore_current_blog();
			}
		}
	}

	/**
	 * A user of this site has another name, or goes. Only those who have written something are seen.
	 *
	 * @param int $user_id The user's ID.
	 */
	private static function author_changed( $user_id ) {
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
	 * An option of the network has another value. Plugins are activated for all of its sites by one.
	 *
	 * @param string $option Its name.
	 */
	public static function network_option_changed( $option ) {
		if ( in_array( $option, self::NETWORK_OPTIONS, true ) ) {
			self::network_changed();
		}
	}

	/**
	 * A site of the network is archived or shown again, or has another address.
	 *
	 * @param WP_Site $site   The site.
	 * @param WP_Site $before The site as it was.
	 */
	public static function site_changed( $site, $before ) {
		foreach ( self::SITE_PROPERTIES as $property ) {
			if ( (string) $site->$property !== (string) $before->$property ) {
				self::site_deleted( $site );
				return;
			}
		}
	}

	/**
	 * A site of the network is not there any more.
	 *
	 * @param WP_Site $site The site.
	 */
	public static function site_deleted( $site ) {
		self::drop_names( array( 'wp' . (int) $site->blog_id ) );
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
	 * Any page of any site of the network may look different: they share their plugins and themes.
	 */
	public static function network_changed() {
		self::drop_names( array( 'wp' ) );
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
}
