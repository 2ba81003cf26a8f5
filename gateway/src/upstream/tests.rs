use super::*;

#[test]
fn servers_are_urls_without_anything_but_host_and_port() {
    let server = |text: &str| text.parse::<Server>();
    let known = server("https://apiserver.example:6443").unwrap();
    assert_eq!((known.tls, known.host.as_str(), known.port), (true, "apiserver.example", 6443));
    let known = server("https://[::1]").unwrap();
    assert_eq!((known.host.as_str(), known.port, known.to_string().as_str()), ("::1", 443, "https://[::1]"));
    for wrong in ["apiserver:6443", "ftp://a:1", "https://a/path", "https://a/?q", "https://u@a:1", ""] {
        assert!(server(wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn servers_take_turns_and_the_unhealthy_ones_are_passed_over() {
    let servers = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"];
    let pools: Vec<_> = servers.iter().map(|server| Rc::new(Pool::new(server.parse().unwrap(), 1))).collect();
    let settings = Settings::new(pools.iter().map(|pool| pool.server.clone()).collect(), None);
    let upstream = Upstream { settings, servers: pools, round: Cell::new(0), starved: Seldom::default() };
    let ports =
        |count: usize| -> Vec<u16> { (0..count).map(|_| upstream.choose(0).unwrap().server.port).collect() };
    assert_eq!(ports(4), [2, 3, 1, 2]);
    assert!(upstream.look().iter().all(|server| !server.healthy), "none has answered yet");
    upstream.servers.iter().for_each(|pool| pool.answered.set(true));
    upstream.servers[0].healthy.set(false);
    let well: Vec<bool> = upstream.look().iter().map(|server| server.healthy).collect();
    assert_eq!((upstream.healthy(), well), (2, vec![false, true, true]));
    assert_eq!(ports(3), [3, 2, 2]);
    upstream.servers.iter().for_each(|pool| pool.healthy.set(false));
    let mut tried: Vec<u16> = (0..3).map(|attempt| upstream.choose(attempt).unwrap().server.port).collect();
    tried.sort_unstable();
    assert_eq!(tried, [1, 2, 3], "all are tried if none is well");
}
