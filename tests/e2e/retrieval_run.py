#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run by hand: clients of embeddings and rerank, unmodified but for the address, and the bodies of those that are no library.

    tests/e2e/retrieval_run.py [CASE...]       # first installs the libraries into build/libraries
    tests/e2e/retrieval_run.py --memory [CASE...]    # LiteLLM and mem0, which need an older openai

Every client must get the vectors and scores that the routes give to a plain request. The models are the demo with prompts,
and the demo as a judge by two of its tokens.
"""
import base64
import contextlib
import json
import os
import struct
import sys
import urllib.request

from install_libraries import enter_venv

MEMORY = "--memory" in sys.argv
if MEMORY:
    sys.argv.remove("--memory")
    os.environ.setdefault("OLDER_OPENAI", "1")
MEMORY = os.environ.get("OLDER_OPENAI") == "1"
enter_venv(*(("memory", "requirements_memory.txt") if MEMORY else ("retrieval", "requirements_retrieval.txt")))
os.environ.update(NO_PROXY="127.0.0.1", LANGSMITH_TRACING="false", HAYSTACK_TELEMETRY_ENABLED="False", MEM0_TELEMETRY="False",
                  LITELLM_LOCAL_MODEL_COST_MAP="True", HF_HUB_OFFLINE="0", DO_NOT_TRACK="1")

from hearth_server import Hearth, run_cases
from tiny_models import DemoCopy

EMBED = RERANK = None
NAME = "default"
TEXTS = ["a cat sat on the mat", "Once upon a time there was a moon", "Über 😀 größe", "word " * 300]
QUERY = "where is the cat"


def plain(texts, **fields):
    status, _, body = EMBED.post("/v1/embeddings", {"input": texts, **fields})
    assert status == 200, body
    return [d["embedding"] for d in body["data"]]


def scores(documents=TEXTS):
    """relevance_score of each document"""
    status, _, body = RERANK.post("/v1/rerank", {"query": QUERY, "documents": documents})
    assert status == 200, body
    return {r["index"]: r["relevance_score"] for r in body["results"]}


def near(got, wanted):
    """Vectors that went through float32, float64 or text of nine digits."""
    assert len(got) == len(wanted), (len(got), len(wanted))
    for a, b in zip(got, wanted):
        assert len(a) == len(b) and max(abs(x - y) for x, y in zip(a, b)) < 1e-7, (list(a)[:3], b[:3])


def ranked(pairs, n=len(TEXTS)):
    """(index, score) of a client's answer, best first."""
    want = sorted(scores().items(), key=lambda item: -item[1])[:n]
    assert [i for i, _ in pairs] == [i for i, _ in want], (pairs, want)
    assert all(abs(a - b) < 1e-6 for (_, a), (_, b) in zip(pairs, want)), (pairs, want)


def raised(call, *words):
    try:
        call()
    except Exception as e:  # each library has its own
        assert all(word in str(e) for word in words), e
    else:
        assert False, "no error"


# ---- LangChain -----------------------------------------------------------------------------------

def langchain_openai(**options):
    from langchain_openai import OpenAIEmbeddings
    return OpenAIEmbeddings(base_url=EMBED.url + "/v1", api_key="none", model=NAME, max_retries=0, **options)


def test_langchain_openai():
    e = langchain_openai(check_embedding_ctx_length=False)
    near(e.embed_documents(TEXTS), plain(TEXTS))
    near([e.embed_query(QUERY)], plain([QUERY]))
    many = [f"text {i}" for i in range(1500)]  # in requests of 1,000
    near(e.embed_documents(many), plain(many))
    near(langchain_openai(check_embedding_ctx_length=False, dimensions=16).embed_documents(TEXTS), plain(TEXTS, dimensions=16))


def test_langchain_openai_with_token_ids():
    """As by default it counts tokens of OpenAI's vocabulary, here of one with as large ids, and sends those."""
    import tiktoken
    ranks = {bytes([b]): 100000 + b for b in range(256)}
    tiktoken.registry.ENCODINGS["cl100k_base"] = tiktoken.Encoding("cl100k_base", pat_str=".", mergeable_ranks=ranks, special_tokens={})
    raised(lambda: langchain_openai().embed_documents(TEXTS), "tokenised for another model", "check_embedding_ctx_length=False")


def test_langchain_cohere_rerank():
    from langchain_cohere import CohereRerank
    r = CohereRerank(cohere_api_key="none", base_url=RERANK.url, model=NAME, top_n=2)
    ranked([(x["index"], x["relevance_score"]) for x in r.rerank(TEXTS, QUERY)], 2)
    from langchain_core.documents import Document
    kept = r.compress_documents([Document(t) for t in TEXTS], QUERY)
    assert [d.page_content for d in kept] == [TEXTS[x["index"]] for x in r.rerank(TEXTS, QUERY)]


def test_langchain_jina_rerank():
    from langchain_community.document_compressors import JinaRerank, jina_rerank
    jina_rerank.JINA_API_URL = RERANK.url + "/v1/rerank"
    r = JinaRerank(jina_api_key="none", model=NAME, top_n=3)
    ranked([(x["index"], x["relevance_score"]) for x in r.rerank(TEXTS, QUERY)], 3)
    raised(lambda: r.rerank(["a"] * 1001, QUERY), "1001 texts")


def test_langchain_infinity():
    from langchain_community.embeddings import InfinityEmbeddings
    near(InfinityEmbeddings(model=NAME, infinity_api_url=EMBED.url + "/v1").embed_documents(TEXTS), plain(TEXTS))


# ---- LlamaIndex ----------------------------------------------------------------------------------

def test_llama_index_openai():
    from llama_index.embeddings.openai import OpenAIEmbedding
    from llama_index.embeddings.openai_like import OpenAILikeEmbedding
    e = OpenAIEmbedding(model_name=NAME, api_base=EMBED.url + "/v1", api_key="none", max_retries=0)
    near(e.get_text_embedding_batch(TEXTS), plain([t.replace("\n", " ") for t in TEXTS]))
    e = OpenAILikeEmbedding(model_name=NAME, api_base=EMBED.url + "/v1", api_key="none", embed_batch_size=100)
    near(e.get_text_embedding_batch(TEXTS), plain(TEXTS))
    near([e.get_query_embedding(QUERY)], plain([QUERY]))


def test_llama_index_tei():
    from llama_index.embeddings.text_embeddings_inference import TextEmbeddingsInference
    e = TextEmbeddingsInference(base_url=EMBED.url, model_name=NAME, text_instruction="", query_instruction="", truncate_text=False)
    near(e.get_text_embedding_batch(TEXTS), plain([t.strip() for t in TEXTS]))


def test_llama_index_ollama():
    from llama_index.embeddings.ollama import OllamaEmbedding
    e = OllamaEmbedding(model_name=NAME, base_url=EMBED.url)
    near(e.get_text_embedding_batch(TEXTS), plain([t.strip() for t in TEXTS]))
    near([e.get_query_embedding(QUERY)], plain([QUERY]))


def nodes():
    from llama_index.core.schema import NodeWithScore, TextNode
    return [NodeWithScore(node=TextNode(text=t, id_=str(i))) for i, t in enumerate(TEXTS)]


def test_llama_index_jina_rerank():
    from llama_index.core.schema import QueryBundle
    from llama_index.postprocessor.jinaai_rerank import JinaRerank
    r = JinaRerank(model=NAME, api_key="none", base_url=RERANK.url, top_n=3)
    ranked([(int(n.node.node_id), n.score) for n in r.postprocess_nodes(nodes(), QueryBundle(QUERY))], 3)
    wrong = JinaRerank(model=NAME, api_key="none", base_url=EMBED.url, top_n=3)
    raised(lambda: wrong.postprocess_nodes(nodes(), QueryBundle(QUERY)), "no head that scores pairs")


def test_llama_index_cohere_rerank():
    from llama_index.core.schema import QueryBundle
    from llama_index.postprocessor.cohere_rerank import CohereRerank
    r = CohereRerank(model=NAME, api_key="none", base_url=RERANK.url, top_n=3)
    ranked([(int(n.node.node_id), n.score) for n in r.postprocess_nodes(nodes(), QueryBundle(QUERY))], 3)


# ---- others --------------------------------------------------------------------------------------

def test_haystack():
    from haystack import Document
    from haystack.components.embedders import OpenAIDocumentEmbedder, OpenAITextEmbedder
    from haystack.utils import Secret
    options = {"api_key": Secret.from_token("none"), "model": NAME, "api_base_url": EMBED.url + "/v1"}
    made = OpenAIDocumentEmbedder(**options, progress_bar=False).run([Document(content=t) for t in TEXTS])["documents"]
    near([d.embedding for d in made], plain(TEXTS))
    near([OpenAITextEmbedder(**options).run(QUERY)["embedding"]], plain([QUERY]))


def test_cohere():
    import cohere
    e, r = (cohere.ClientV2(api_key="none", base_url=s.url) for s in (EMBED, RERANK))
    made = e.embed(model=NAME, input_type="search_query", texts=TEXTS, embedding_types=["float"])
    near(made.embeddings.float_, plain(TEXTS, input_type="search_query"))
    short = e.embed(model=NAME, input_type="search_document", texts=TEXTS, embedding_types=["float"], output_dimension=16)
    near(short.embeddings.float_, plain(TEXTS, dimensions=16))
    ranked([(x.index, x.relevance_score) for x in r.rerank(model=NAME, query=QUERY, documents=TEXTS, top_n=3).results], 3)
    raised(lambda: r.rerank(model=NAME, query=QUERY, documents=[]), "1 to 1000")
    raised(lambda: e.embed(model=NAME, input_type="search_query", texts=TEXTS, embedding_types=["int8"]), "embedding_types")


def test_voyage():
    import voyageai
    e, r = (voyageai.Client(api_key="none", base_url=s.url + "/v1", max_retries=0) for s in (EMBED, RERANK))
    near(e.embed(TEXTS, model=NAME, input_type="document").embeddings, plain(TEXTS, input_type="document"))
    near(e.embed(TEXTS, model=NAME, output_dimension=16).embeddings, plain(TEXTS, dimensions=16))
    ranked([(x.index, x.relevance_score) for x in r.rerank(QUERY, TEXTS, model=NAME, top_k=2).results], 2)
    ranked([(x.index, x.relevance_score) for x in r.rerank(QUERY, TEXTS, model=NAME).results])


def test_ollama():
    import ollama
    e = ollama.Client(host=EMBED.url)
    near(e.embed(model=NAME, input=TEXTS).embeddings, plain(TEXTS))
    near(e.embed(model=NAME, input=TEXTS, dimensions=16).embeddings, plain(TEXTS, dimensions=16))
    one = e.embeddings(model=NAME, prompt=QUERY).embedding
    near([one], plain([QUERY]))


def test_huggingface_hub():
    from huggingface_hub import InferenceClient
    for url in (EMBED.url, EMBED.url + "/embed"):
        made = InferenceClient(model=url).feature_extraction(QUERY, normalize=True, prompt_name="query")
        near(made.tolist() if len(made.shape) == 2 else [made.tolist()], plain([QUERY], prompt_name="query"))


def test_openai():
    """Without a format it asks for base64 and decodes that, by numpy or not."""
    import openai
    e = openai.OpenAI(base_url=EMBED.url + "/v1", api_key="none", max_retries=0)
    near([d.embedding for d in e.embeddings.create(model=NAME, input=TEXTS).data], plain(TEXTS))
    near([d.embedding for d in e.embeddings.create(model=NAME, input=TEXTS, encoding_format="float").data], plain(TEXTS))


# ---- bodies of programs that are no library ------------------------------------------------------

def posted(server, path, body):
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), {"Content-Type": "application/json", "Authorization": "Bearer none"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_open_webui_bodies():
    results = posted(RERANK, "/v1/rerank", {"model": NAME, "query": QUERY, "documents": TEXTS, "top_n": len(TEXTS)})["results"]
    got = [r["relevance_score"] for r in sorted(results, key=lambda r: r["index"])]
    assert got == [scores()[i] for i in range(len(TEXTS))]
    for prefix in ("prompt", "prefix", "instruction"):
        made = posted(EMBED, "/v1/embeddings", {"input": TEXTS, "model": NAME, prefix: "search: "})["data"]
        near([d["embedding"] for d in made], plain(TEXTS, **{prefix: "search: "}))
    near(posted(EMBED, "/api/embed", {"input": TEXTS, "model": NAME})["embeddings"], plain(TEXTS))


def test_dify_bodies():
    for field in ("documents", "texts"):
        answer = posted(RERANK, "/v1/rerank", {"model": NAME, "query": QUERY, field: TEXTS, "top_n": len(TEXTS)})
        results = answer["results"] if field == "documents" else answer
        assert {r["index"]: r.get("relevance_score", r.get("score")) for r in results} == scores()
    made = posted(EMBED, "/v1/embeddings", {"input": TEXTS, "model": NAME, "encoding_format": "float", "user": "abc-123"})
    near([d["embedding"] for d in made["data"]], plain(TEXTS))
    assert made["usage"]["total_tokens"] > 0


def test_ragflow_bodies():
    for more in ({"top_n": len(TEXTS)}, {"return_documents": "true", "return_len": "true"}, {"top_n": 4, "return_documents": False}):
        results = posted(RERANK, "/v1/rerank", {"model": NAME, "query": QUERY, "documents": TEXTS, **more})["results"]
        assert {r["index"]: r["relevance_score"] for r in results} == scores(), more
    for i in range(0, len(TEXTS), 2):  # its class for text-embeddings-inference, in batches
        results = posted(RERANK, "/rerank", {"query": QUERY, "texts": TEXTS[i:i + 2], "raw_scores": False, "truncate": True})
        assert {r["index"] + i: r["score"] for r in results} == {k: v for k, v in scores().items() if i <= k < i + 2}
    made = posted(EMBED, "/v1/embeddings", {"input": TEXTS, "model": NAME, "encoding_format": "float"})["data"]
    near([d["embedding"] for d in made], plain(TEXTS))


def test_anything_llm_bodies():
    chunks = ["word " * 200] * 500
    made = posted(EMBED, "/v1/embeddings", {"model": NAME, "input": chunks, "encoding_format": "base64"})["data"]
    assert len(made) == 500
    near([struct.unpack("<128f", base64.b64decode(made[499]["embedding"]))], plain([chunks[0]]))


# ---- LiteLLM and mem0 ----------------------------------------------------------------------------

def memory_litellm_embeddings():
    import litellm
    for provider, base in (("openai", "/v1"), ("hosted_vllm", "/v1"), ("infinity", "/v1"), ("jina_ai", "/v1"), ("ollama", ""),
                           ("cohere", "/v2/embed"), ("voyage", "/v1/embeddings"), ("lm_studio", "/v1")):
        made = litellm.embedding(f"{provider}/{NAME}", TEXTS, api_base=EMBED.url + base, api_key="none")
        vectors = [d["embedding"] if isinstance(d, dict) else d.embedding for d in made.data]
        with named(provider):
            near(vectors, plain(TEXTS))


def memory_litellm_rerank():
    import litellm
    for provider, base in (("hosted_vllm", "/v1"), ("infinity", ""), ("jina_ai", "/v1/rerank"), ("cohere", ""), ("voyage", "/v1"),
                           ("huggingface", "")):
        # of Infinity it takes documents as strings, of all others as objects
        made = litellm.rerank(f"{provider}/{NAME}", QUERY, TEXTS, top_n=3, return_documents=provider != "infinity", api_base=RERANK.url + base, api_key="none")
        with named(provider):
            ranked([(r["index"], r["relevance_score"]) for r in made.results], 3)


def memory_mem0():
    from mem0.configs.embeddings.base import BaseEmbedderConfig
    from mem0.embeddings.openai import OpenAIEmbedding
    e = OpenAIEmbedding(BaseEmbedderConfig(model=NAME, api_key="none", openai_base_url=EMBED.url + "/v1", embedding_dims=128))
    near([e.embed(t, "add") for t in TEXTS[:3]], plain(TEXTS[:3]))
    near(e.embed_batch(TEXTS[:3], "add"), plain(TEXTS[:3]))


@contextlib.contextmanager
def named(what):
    try:
        yield
    except AssertionError as e:
        raise AssertionError(what) from e


def main():
    global EMBED, RERANK
    if MEMORY:
        for name in [n for n in globals() if n.startswith("test_")]:
            del globals()[name]
        for name in [n for n in globals() if n.startswith("memory_")]:
            globals()["test_" + name] = globals()[name]
    with DemoCopy() as e, DemoCopy() as r:
        e.put("config_sentence_transformers.json", {"prompts": {"query": "search: ", "document": ""}})
        r.put("pair.txt", "Q: {query}\nD: {document}\nA:")
        with Hearth("--model", e.dir, "--accept-any-model") as EMBED, \
                Hearth("--model", r.dir, "--accept-any-model", "--rerank-tokens", "y,n", "--rerank-template", r.path("pair.txt")) as RERANK:
            run_cases(globals())


if __name__ == "__main__":
    main()
