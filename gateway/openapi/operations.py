"""What every operation takes and gives, in one table.

The endpoints read raw requests, so that big bodies are parsed off the event loop; only this table
tells the OpenAPI document of their bodies.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from gateway.openai.batches import BatchList, BatchObject, CreateBatchBody
from gateway.openai.chat import ChatBody
from gateway.openai.compacting import CompactBody, CompactedResponse
from gateway.openai.completion_answers import TextCompletion
from gateway.openai.completions import CompletionBody
from gateway.openai.embeddings import EmbeddingsBody, EmbeddingsList
from gateway.openai.files import FileDeleted, FileList, FileObject
from gateway.openai.models import ModelList, ModelObject
from gateway.openai.objects import ChatCompletion
from gateway.openai.responses_bodies import ResponseBody
from gateway.openai.responses_objects import InputItemList, ResponseDeleted, ResponseObject
from gateway.openai.stored import ChatDeleted, ChatList, MessageList, StoredChat, UpdateChat
from gateway.openai.tokenize import DetokenizeAnswer, DetokenizeBody, TokenizeAnswer
from gateway.openai.uploads import CompleteUpload, CreateUpload, PartObject, UploadObject
from gateway.openai.vector_stores_bodies import (
    CreateBatch,
    CreateStore,
    CreateStoreFile,
    SearchStore,
    UpdateStore,
    UpdateStoreFile,
)
from gateway.openai.vector_stores_objects import (
    BatchObject as StoreBatchObject,
)
from gateway.openai.vector_stores_objects import (
    ContentObject,
    Deleted,
    HitsObject,
    ListObject,
    StoreFileObject,
    StoreObject,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`answer` is a TypedDict; None: no JSON. A form has one `file` and the fields of `form`."""

    answer: type | None = None
    body: type[BaseModel] | None = None
    form: Mapping[str, object] | None = None
    streams: bool = False
    media_type: str = "application/json"
    refuses: bool = True
    """Whether what goes wrong is told as OpenAI's error object."""


CHAT = "/v1/chat/completions/{completion_id}"
STORES = "/v1/vector_stores"
STORE = STORES + "/{store_id}"

BINARY: Mapping[str, object] = {"type": "string", "contentMediaType": "application/octet-stream"}
FILE_FORM: Mapping[str, object] = {
    "type": "object",
    "properties": {
        "file": BINARY,
        "purpose": {"enum": ["assistants", "batch", "user_data"]},
        "expires_after[anchor]": {"enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000},
    },
    "required": ["file", "purpose"],
    "additionalProperties": False,
    "dependentRequired": {
        "expires_after[anchor]": ["expires_after[seconds]"],
        "expires_after[seconds]": ["expires_after[anchor]"],
    },
}
PART_FORM: Mapping[str, object] = {
    "type": "object",
    "properties": {"data": BINARY},
    "required": ["data"],
    "additionalProperties": False,
}

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("post", "/v1/chat/completions"): Operation(answer=ChatCompletion, body=ChatBody, streams=True),
    ("get", "/v1/chat/completions"): Operation(answer=ChatList),
    ("get", CHAT): Operation(answer=StoredChat),
    ("post", CHAT): Operation(answer=StoredChat, body=UpdateChat),
    ("delete", CHAT): Operation(answer=ChatDeleted),
    ("get", CHAT + "/messages"): Operation(answer=MessageList),
    ("post", "/v1/completions"): Operation(
        answer=TextCompletion, body=CompletionBody, streams=True
    ),
    ("post", "/v1/responses"): Operation(answer=ResponseObject, body=ResponseBody, streams=True),
    ("post", "/v1/responses/compact"): Operation(answer=CompactedResponse, body=CompactBody),
    ("get", "/v1/responses/{response_id}"): Operation(answer=ResponseObject),
    ("delete", "/v1/responses/{response_id}"): Operation(answer=ResponseDeleted),
    ("post", "/v1/responses/{response_id}/cancel"): Operation(answer=ResponseObject),
    ("get", "/v1/responses/{response_id}/input_items"): Operation(answer=InputItemList),
    ("post", "/v1/embeddings"): Operation(answer=EmbeddingsList, body=EmbeddingsBody),
    ("post", "/v1/batches"): Operation(answer=BatchObject, body=CreateBatchBody),
    ("get", "/v1/batches"): Operation(answer=BatchList),
    ("get", "/v1/batches/{batch_id}"): Operation(answer=BatchObject),
    ("post", "/v1/batches/{batch_id}/cancel"): Operation(answer=BatchObject),
    ("get", "/v1/models"): Operation(answer=ModelList),
    ("get", "/v1/models/{model}"): Operation(answer=ModelObject),
    ("post", "/v1/tokenize"): Operation(answer=TokenizeAnswer),
    ("post", "/v1/detokenize"): Operation(answer=DetokenizeAnswer, body=DetokenizeBody),
    ("post", "/v1/files"): Operation(answer=FileObject, form=FILE_FORM),
    ("get", "/v1/files"): Operation(answer=FileList),
    ("get", "/v1/files/{file_id}"): Operation(answer=FileObject),
    ("delete", "/v1/files/{file_id}"): Operation(answer=FileDeleted),
    ("get", "/v1/files/{file_id}/content"): Operation(media_type="application/octet-stream"),
    ("post", "/v1/uploads"): Operation(answer=UploadObject, body=CreateUpload),
    ("post", "/v1/uploads/{upload_id}/parts"): Operation(answer=PartObject, form=PART_FORM),
    ("post", "/v1/uploads/{upload_id}/complete"): Operation(
        answer=UploadObject, body=CompleteUpload
    ),
    ("post", "/v1/uploads/{upload_id}/cancel"): Operation(answer=UploadObject),
    ("post", STORES): Operation(answer=StoreObject, body=CreateStore),
    ("get", STORES): Operation(answer=ListObject),
    ("get", STORE): Operation(answer=StoreObject),
    ("post", STORE): Operation(answer=StoreObject, body=UpdateStore),
    ("delete", STORE): Operation(answer=Deleted),
    ("post", STORE + "/search"): Operation(answer=HitsObject, body=SearchStore),
    ("post", STORE + "/files"): Operation(answer=StoreFileObject, body=CreateStoreFile),
    ("get", STORE + "/files"): Operation(answer=ListObject),
    ("get", STORE + "/files/{file_id}"): Operation(answer=StoreFileObject),
    ("post", STORE + "/files/{file_id}"): Operation(answer=StoreFileObject, body=UpdateStoreFile),
    ("delete", STORE + "/files/{file_id}"): Operation(answer=Deleted),
    ("get", STORE + "/files/{file_id}/content"): Operation(answer=ContentObject),
    ("post", STORE + "/file_batches"): Operation(answer=StoreBatchObject, body=CreateBatch),
    ("get", STORE + "/file_batches/{batch_id}"): Operation(answer=StoreBatchObject),
    ("post", STORE + "/file_batches/{batch_id}/cancel"): Operation(answer=StoreBatchObject),
    ("get", STORE + "/file_batches/{batch_id}/files"): Operation(answer=ListObject),
    ("get", "/metrics"): Operation(media_type="text/plain"),
    ("get", "/health/live"): Operation(),
    ("get", "/health/ready"): Operation(refuses=False),
}
